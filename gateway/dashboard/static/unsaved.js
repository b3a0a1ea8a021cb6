// Asks before typed values are lost: before the browser leaves the page, and before htmx replaces it.

import { ask } from "./page.js";

const FORMS = "main :is(form[hx-post], form[hx-patch], form[data-version-form])";
const ROWS = "[data-add-row], [data-remove-row], [data-move]";

const changed = new Set(); // forms

const hasUnsaved = () => [...changed].some((form) => form.isConnected);

const record = (element) => {
  const form = element.closest?.(FORMS);
  if (form) changed.add(form);
};

document.addEventListener("input", ({ target }) => record(target));
document.addEventListener("click", ({ target }) => target.closest(ROWS) && record(target), true); // before the row is removed

for (const name of ["operation", "reset"]) document.addEventListener(name, ({ target }) => changed.delete(target.closest("form")), true);

addEventListener("beforeunload", (event) => hasUnsaved() && event.preventDefault());

// Links, and forms that only filter a list.
const REPLACES_PAGE = ":is(a, form):not([hx-get], [hx-post], [hx-patch], [hx-delete])";

document.addEventListener("htmx:confirm", (event) => {
  const { elt, issueRequest } = event.detail;
  if (!elt.matches(REPLACES_PAGE) || !hasUnsaved()) return;
  event.preventDefault();
  const { leave, leaveText, leaveYes } = document.getElementById("texts").dataset;
  ask({ title: leave, text: leaveText, yes: leaveYes }, () => {
    changed.clear();
    issueRequest(true);
  });
});
