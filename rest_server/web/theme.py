"""Look of the page: colours with enough contrast in light and dark, and one icon."""

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<rect width="16" height="16" rx="3" fill="#0b5394"/>'
    '<path d="M3 12h2V7H3zm4 0h2V4H7zm4 0h2V9h-2z" fill="#fff"/></svg>'
)
PRIMARY = "#0b5394"
STYLE = """
:root { --ink: #1b1f24; --soft: #545b64; --line: #d5d9de; --card: #fff; --page: #f6f7f9; --link: #0b5394;
  --bad: #a3200d; --good: #17663a; }
.body--dark { --ink: #e6e8eb; --soft: #b3bac3; --line: #3a4048; --card: #1c2025; --page: #121418; --link:
  #8ab8f0;
  --bad: #ff9c8a; --good: #7fd6a0; }
body { background: var(--page); color: var(--ink); }
.nicegui-content { padding: 0; gap: 0; }
.page { width: 100%; max-width: 1500px; margin: 0 auto; padding: 12px 16px 48px; min-height: calc(100vh -
  60px); }
.bar { background: var(--card) !important; color: var(--ink) !important; border-bottom: 1px solid
  var(--line); align-items: center;
  padding: 4px 12px; gap: 4px; flex-wrap: wrap; box-shadow: none !important; }
.bar h1 { font-size: 1.1rem; font-weight: 600; margin: 0; line-height: 2rem; }
.bar .q-tab, .q-btn { text-transform: none; }
.panel { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px;
  box-shadow: none; width: 100%; gap: 8px; }
.panel h2, .results h2 { font-size: 1rem; font-weight: 600; margin: 0; line-height: 1.4; }
.split { display: grid; grid-template-columns: 320px minmax(0, 1fr); gap: 16px; width: 100%; align-items:
  start; }
.split.even { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); }
.results { display: grid; grid-template-columns: minmax(0, 1fr); gap: 12px; min-width: 0; width: 100%; }
.summary { margin-bottom: 12px; }
.status { min-height: 1.5em; }
.facts { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 12px; width: 100%; }
.fact { padding: 10px 12px; gap: 0; min-height: 88px; }
.fact .value { font-size: 1.25rem; font-weight: 600; line-height: 1.3; overflow-wrap: anywhere; }
.soft, .q-field__label, .fact .name { color: var(--soft) !important; }
.change { color: var(--soft); font-size: .85em; margin-left: .5em; white-space: nowrap; }
.fact .change { margin: 0; min-height: 1.3em; white-space: normal; }
.fact .name, .fact .value { min-height: 1.3em; }
.alert .value, .error { color: var(--bad); }
.region { overflow-x: auto; width: 100%; }
.region:focus-visible, td button:focus-visible, th button:focus-visible, input[type=range]:focus-visible {
  outline: 2px solid var(--link); outline-offset: 1px; }
input[type=range] { accent-color: var(--link); width: 100%; height: 32px; }
.q-table__card { background: transparent; color: var(--ink); box-shadow: none; }
.q-table__container, .q-table__middle { overflow: visible !important; max-width: none; }
.q-table th { color: var(--soft); font-weight: 600; opacity: 1; }
.q-table tbody td, .q-table th { padding: 4px 8px !important; height: 32px !important; }
.q-table td.words { white-space: normal; min-width: 14em; }
.q-table button { all: unset; cursor: pointer; }
.q-table td button { color: var(--link); text-decoration: underline; }
.swatch { display: inline-block; width: .75em; height: .75em; border-radius: 2px; margin-right: .5em; }
.waiting { height: 4px; width: 100%; }
.finding { text-align: left; width: 100%; }
.finding .q-btn__content { justify-content: flex-start; text-align: left; }
.editor { height: 520px; width: 100%; border: 1px solid var(--line); border-radius: 4px; }
.q-tab { opacity: 1 !important; transition: none !important; }
.q-tab .q-focus-helper, .q-btn .q-focus-helper, .q-tab .q-ripple, .q-btn .q-ripple { display: none; }
.q-tab:hover, .q-btn:hover { text-decoration: underline; }
.q-tab:focus-visible, .q-btn:focus-visible { outline: 2px solid var(--link); outline-offset: -2px; }
.q-btn--flat, .q-tab--active { color: var(--link); }
.body--dark { color-scheme: dark; --q-primary: #1f6fb8; }
.cm-editor, .cm-gutters { background: var(--card) !important; color: var(--ink) !important; }
.cm-editor .cm-content span { color: inherit !important; }
.cm-gutters .cm-gutterElement { color: var(--soft) !important; }
.cm-activeLine, .cm-activeLineGutter { background: transparent !important; }
.cm-line.found { background: #f5c84266 !important; }
.cm-cursor { border-color: var(--ink) !important; }
.results > * { scroll-margin-top: 64px; }
.q-uploader__header { background: transparent; color: inherit; }
.q-uploader__list { display: none; }
.q-placeholder::placeholder { color: var(--soft); opacity: 1; }
.tip { overflow-wrap: anywhere; }
.picture { width: 100%; max-width: 760px; background: #fff; border-radius: 4px; }
@media (max-width: 900px) {
  .status { min-height: 4.5em; }
  .fact .value, .fact .change { min-height: 2.6em; }
  .split, .split.even { grid-template-columns: minmax(0, 1fr); }
  .facts { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .page { padding: 8px 8px 32px; }
  .editor { height: 320px; }
}
"""
