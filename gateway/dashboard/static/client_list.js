// Several clients of the page at once, and the file of their tokens:
//   data-select="name"          selects a client for the buttons in [data-selection]
//   data-bulk="action"          a button that runs one of ACTIONS for the selected clients; data-title is the title of its
//                               confirmation, with `{n}` for their number

import { reloadList } from "./clients.js";
import { callOperation } from "./operations.js";
import { showToast } from "./page.js";

// No cell begins with a character that a spreadsheet would take for a formula: all are host names, UUIDs and web addresses.
const tokensFile = (clients) => {
  const columns = ["client_name", "client_id", "auth_token", "source_url"];
  const lines = clients.map((client) => columns.map((column) => client[column]));
  return new Blob([[columns, ...lines, ""].join("\r\n")], { type: "text/csv" });
};

export const offerTokens = ({ clients, skipped }) => {
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
      if (action === rotate) issued.push({ ...answer, client_name });
      left.delete(client_id);
    } catch (problem) {
      reason = problem.message;
      if (problem.status === 401) break; // The session has ended.
    }
  }
  if (issued.length) offerTokens({ clients: issued, skipped: 0 });
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
