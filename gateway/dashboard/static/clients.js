// The pages of the clients, the API tokens and the users. A new token or password is shown once:
//   data-issues="name"          an operation that returns the token of this name; without a name, of the name in the form
//   data-issued="text"          inside #issued: a text with the placeholder `{token}` or `{source_url}`; without that address,
//                               the element around it with data-issued-part is hidden
//   data-deletes="address"      deletes a client. This needs its token, which is not stored: the client gets a new one first
//   data-undeleted="text"       the message after a failed deletion, with `{name}`; data-again is the label of the retry button
//   data-imports                a form that adds the clients of a file; their tokens are downloaded as a file from #imported

import { callOperation } from "./operations.js";
import { navigate, showToast } from "./page.js";

const showToken = (name, { auth_token, token, password, source_url = "" }) => {
  const place = document.getElementById("issued");
  place.querySelector("[data-issued-name]").textContent = name;
  for (const code of place.querySelectorAll("[data-issued]")) {
    const { issued } = code.dataset;
    code.textContent = issued.replace("{token}", auth_token ?? token ?? password).replace("{source_url}", source_url);
    const part = code.closest("[data-issued-part]");
    if (part) part.hidden = issued.includes("{source_url}") && !source_url;
    code.closest(".copyable").querySelector("[data-copy]").dataset.copy = code.textContent;
  }
  place.hidden = false;
  place.focus();
};

// Reload only the list, because the token must stay visible.
export const reloadList = () => htmx.ajax("GET", location.href, { target: "#found", select: "#found", swap: "outerHTML" });

// A retry uses the same token; a new start would replace the token again.
const deleteClient = async (address, name, done) => {
  const list = () => document.getElementById("clients");
  list().querySelector("[data-problem]").textContent = "";
  try {
    await callOperation("DELETE", address);
    navigate(location.href);
    showToast(done);
  } catch (problem) {
    if (problem.code === "client_not_found") return navigate(location.href); // The client was deleted, but the response was lost.
    const place = list()?.querySelector("[data-problem]");
    if (!place) return; // The user has left the page.
    const { undeleted, again } = list().dataset;
    const button = Object.assign(document.createElement("button"), { type: "button", className: "small", textContent: again });
    button.onclick = () => deleteClient(address, name, done);
    place.replaceChildren(undeleted.replace("{name}", name), " ", problem.message, " ", button);
    button.focus();
  }
};

document.addEventListener("operation", (event) => {
  const { target, detail } = event;
  const { issues, deletes, imports } = target.dataset;
  if (deletes !== undefined) {
    event.preventDefault();
    deleteClient(`${deletes}/${detail.auth_token}`, target.dataset.confirm, target.closest("tr").dataset.done);
  } else if (imports !== undefined) {
    event.preventDefault();
    import("./client_list.js").then(({ offerTokens }) => offerTokens(detail)); // Only the page of the clients needs it.
    target.reset();
    reloadList();
  } else if (issues !== undefined) {
    event.preventDefault();
    const form = target.elements;
    showToken(issues || (form.client_name ?? form.name).value, detail);
    if (target.matches("form")) target.reset();
    reloadList();
  }
});

const loadSelection = () => document.querySelector("[data-selection]") && import("./client_list.js");

document.addEventListener("htmx:load", loadSelection);
loadSelection();
