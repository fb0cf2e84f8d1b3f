for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, i) => row.cells[i].textContent.trim();
  const number = (text) => { const n = parseFloat(text.replaceAll(",", "")); return isNaN(n) ? Infinity : n; };
  heads.forEach((head, i) => {
    const numeric = head.classList.contains("number");
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const order = (a, b) => numeric ? number(value(a, i)) - number(value(b, i))
        : value(a, i).localeCompare(value(b, i), undefined, { numeric: true });
      const rows = [...body.rows].sort((a, b) => (down ? -1 : 1) * (order(a, b) || 0));
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...rows);
    };
    head.setAttribute("aria-sort", "none");
    head.tabIndex = 0;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });
}
