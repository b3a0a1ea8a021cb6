// Shows the interface's document. Addresses are relative to the page, so it works below every tenant and /client/api.
"use strict";

const prefix = new URL(".", document.baseURI).pathname.replace(/\/$/, "");

// What is tried out here goes to where the page came from, whatever address the document names.
const thisDeployment = () => ({
  statePlugins: {
    spec: {
      wrapActions: {
        updateJsonSpec: (update) => (openapi) =>
          update({ ...openapi, servers: [{ url: prefix, description: "This deployment" }] }),
      },
    },
  },
});

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const followSystem = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", followSystem);
followSystem();

SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href,
  dom_id: "#interface",
  plugins: [thisDeployment],
  validatorUrl: null, // Nothing of the document leaves this origin.
  queryConfigEnabled: false,
  deepLinking: true,
  docExpansion: "list",
  showExtensions: true, // x-permission
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  filter: true,
});
