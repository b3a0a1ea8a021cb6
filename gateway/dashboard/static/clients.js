// The pages of the clients, the API tokens and the users. A new token or password is shown once:
//   data-issues="name"          an operation that returns the token of this name; without a name, of the name in the form
//   data-issued="text"          inside #issued: a text with the placeholder `{token}`
//   data-deletes="address"      deletes a client. This needs its token, which is not stored: the client gets a new one first
//   data-undeleted="text"       the message after a failed deletion, with `{name}`; data-again is the label of the retry button
//   data-select="name"          selects a client for the buttons in [data-selection]: data-bulk is the action,
//                               data-title the confirmation, both with `{n}` for the number of clients
//   data-imports                a form that adds the clients of a file; their tokens are downloaded as a file from #imported

import { callOperation } from "./operations.js";
import { navigate, showToast } from "./page.js";

const showToken = (name, token) => {
  const place = document.getElementById("issued");
  place.querySelector("[data-issued-name]").textContent = name;
  for (const code of place.querySelectorAll("[data-issued]")) {
    code.textContent = code.dataset.issued.replace("{token}", token);
    code.closest(".copyable").querySelector("[data-copy]").dataset.copy = code.textContent;
  }
  place.hidden = false;
  place.focus();
};

// No cell begins with a character that a spreadsheet would take for a formula: all are host names and UUIDs.
const tokensFile = (clients) => {
  const lines = clients.map(({ client_name, client_id, auth_token }) => [client_name, client_id, auth_token].join(","));
  return new Blob([["client_name,client_id,auth_token", ...lines, ""].join("\r\n")], { type: "text/csv" });
};

const showImported = ({ clients, skipped }) => {
  const place = document.getElementById("imported");
  const link = place.querySelector("a");
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(tokensFile(clients));
  place.querySelector("[data-imported-count]").textContent = clients.length;
  place.querySelector("[data-skipped-count]").textContent = skipped;
  place.querySelector("[data-skipped]").hidden = !skipped;
  link.hidden = !clients.length;
  place.hidden = false;
  place.focus();
};

// Actions for the selected clients, one operation after the other. Each returns what the operation answered.
const operation = (method, name, fields) => callOperation(method, `${document.body.dataset.home}/operations/${name}`, { body: fields && new URLSearchParams(fields) });
const rotate = (id) => operation("POST", `rotate_client_token/${id}`);
const ACTIONS = {
  ring: (id) => operation("PATCH", `edit_client/${id}`, { ring: document.querySelector("[data-ring]").value }),
  rotate,
  delete: async (id) => operation("DELETE", `delete_client/${id}/${(await rotate(id)).auth_token}`),
};

const selection = () => document.querySelector("[data-selection]");
const selectedBoxes = () => [...document.querySelectorAll("[data-select]:checked")];

const showSelection = () => {
  const bar = selection();
  if (!bar) return;
  const boxes = document.querySelectorAll("[data-select]");
  const count = selectedBoxes().length;
  for (const element of [bar, ...boxes]) element.hidden = false;
  for (const element of bar.querySelectorAll("[data-bulk], [data-ring]")) element.disabled = !count;
  Object.assign(bar.querySelector("[data-select-all]"), { checked: count === boxes.length, indeterminate: count > 0 && count < boxes.length });
  bar.querySelector("[data-selected]").textContent = count ? bar.dataset.of.replace("{n}", count) : "";
};

const runForAll = async (action, clients) => {
  const { done, failed } = selection().dataset;
  const left = new Map(clients.map(({ value, dataset }) => [value, dataset.select]));
  const issued = [];
  let reason = "";
  for (const [client_id, client_name] of [...left]) {
    showToast(`${clients.length - left.size + 1} / ${clients.length}`);
    try {
      const answer = await action(client_id);
      if (action === rotate) issued.push({ client_id, client_name, auth_token: answer.auth_token });
      left.delete(client_id);
    } catch (problem) {
      reason = problem.message;
      if (problem.status === 401) break; // The session has ended.
    }
  }
  if (issued.length) showImported({ clients: issued, skipped: 0 });
  showToast(done.replace("{n}", clients.length - left.size));
  await reloadList();
  const values = { n: left.size, total: clients.length, names: [...left.values()].join(", "), reason };
  document.querySelector("#clients > [data-problem]").textContent = left.size ? failed.replace(/\{(\w+)\}/g, (_, name) => values[name]) : "";
};

document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-bulk]");
  if (!button) return;
  const clients = selectedBoxes();
  const { bulk, title } = button.dataset;
  button.dataset.confirmTitle = title.replace("{n}", clients.length);
  if (button.dataset.confirm) button.dataset.confirm = String(clients.length); // It is typed.
  const detail = { elt: button, issueRequest: () => runForAll(ACTIONS[bulk], clients) };
  button.dispatchEvent(new CustomEvent("htmx:confirm", { bubbles: true, cancelable: true, detail })); // The dialog of all pages.
});

document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-select-all]")) for (const box of document.querySelectorAll("[data-select]")) box.checked = target.checked;
  if (target.matches("[data-select-all], [data-select]")) showSelection();
});

document.addEventListener("htmx:load", showSelection);
showSelection();

// Reload only the list, because the token must stay visible.
const reloadList = () => htmx.ajax("GET", location.href, { target: "#found", select: "#found", swap: "outerHTML" });

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
    showImported(detail);
    target.reset();
    reloadList();
  } else if (issues !== undefined) {
    event.preventDefault();
    const form = target.elements;
    showToken(issues || (form.client_name ?? form.name).value, detail.auth_token ?? detail.token ?? detail.password);
    if (target.matches("form")) target.reset();
    reloadList();
  }
});
