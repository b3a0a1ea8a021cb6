// Suggests names while typing, in the datalist of a field: `data-suggest` is "packages" or "clients". A field with
// `data-suggest-many` has several names with commas between them, and the last one is completed.

import { callOperation } from "./operations.js";

const TYPING_PAUSE = 200; // ms
const LIMIT = 20;
const SOURCES = {
  packages: async (query) =>
    (await callOperation("GET", operation("find_packages", query))).packages.map((row) => [row.package_name, row.package_id]),
  clients: async (query) =>
    (await callOperation("GET", operation("find_clients", query))).clients.map((row) => [row.ip ?? "", row.client_name]),
};
const operation = (name, query) => `${document.body.dataset.home}/operations/${name}?${query}`;

const suggest = async (input) => {
  const [, before, text] = "suggestMany" in input.dataset ? /^(.*,\s*)?(.*)$/s.exec(input.value) : [, "", input.value];
  try {
    const names = await SOURCES[input.dataset.suggest](new URLSearchParams({ text: text.trim(), limit: LIMIT }));
    input.list.replaceChildren(...names.map(([label, name]) => new Option(label, `${before ?? ""}${name}`)));
  } catch {
    input.list.replaceChildren(); // The user can still type a name.
  }
};

let timer = 0;
document.addEventListener("input", ({ target }) => {
  if (!target.matches("[data-suggest]")) return;
  clearTimeout(timer);
  timer = setTimeout(() => suggest(target), TYPING_PAUSE);
});

document.addEventListener("focusin", ({ target }) => target.matches("[data-suggest]") && suggest(target));
