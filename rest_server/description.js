const page = document.currentScript.dataset;
SwaggerUIBundle({
  url: page.openapi,
  dom_id: "#swagger-ui",
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
  deepLinking: true,
});
