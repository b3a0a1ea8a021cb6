// The search over packages, versions, clients, users and pages, with keys alone: arrows, Enter, Escape.

import { callOperation } from "./operations.js";
import { navigate } from "./page.js";

const DELAY = 150; // ms after the last key

const dialog = () => document.getElementById("search");
const list = () => document.getElementById("search-results");
const field = () => document.getElementById("search-text");
const options = () => [...list().children];

const part = encodeURIComponent;

// The results of each kind as title, hint and address after the home page.
const KINDS = {
  packages: ({ package_id, package_name }) => [package_name, package_id, `/packages/${part(package_id)}`],
  versions: ({ package_id, version, version_uid }) => [`${package_id} ${version}`, "", `/packages/${part(package_id)}/versions/${part(version_uid)}`],
  clients: ({ client_name, ip }) => [client_name, ip ?? "", `/clients?search=${part(client_name)}`],
  users: ({ username, name }) => [name || username, name ? username : "", "/users"],
};

const resultsOf = (answer) => {
  const { home } = document.body.dataset;
  return Object.entries(KINDS).flatMap(([kind, show]) =>
    answer[kind].map((item) => {
      const [title, hint, address] = show(item);
      return { kind: list().dataset[kind], title, hint, address: home + address };
    }),
  );
};

const pagesOf = (text) =>
  [...document.querySelectorAll("#menu nav a")]
    .map((link) => ({ kind: list().dataset.pages, title: link.firstChild.textContent.trim(), hint: "", address: link.getAttribute("href") }))
    .filter(({ title }) => title.toLowerCase().includes(text.toLowerCase()));

const optionOf = ({ kind, title, hint, address }, index) => {
  const option = Object.assign(document.createElement("li"), { id: `search-option-${index}` });
  option.setAttribute("role", "option");
  option.dataset.address = address;
  const texts = { strong: title, span: hint, small: kind };
  option.append(...Object.entries(texts).map(([name, textContent]) => Object.assign(document.createElement(name), { textContent })));
  return option;
};

const select = (option) => {
  for (const each of options()) each.setAttribute("aria-selected", each === option);
  field().setAttribute("aria-activedescendant", option?.id ?? "");
  option?.scrollIntoView({ block: "nearest" });
};

const selected = () => list().querySelector("[aria-selected=true]");

const show = (results, state = "") => {
  list().replaceChildren(...results.map(optionOf));
  select(list().firstElementChild);
  document.getElementById("search-state").textContent = state || (results.length ? "" : list().dataset.none);
};

let request = new AbortController();

const find = async () => {
  request.abort();
  request = new AbortController();
  const { signal } = request;
  const text = field().value.trim();
  if (!text) return show(pagesOf(""));
  await new Promise((resolve) => setTimeout(resolve, DELAY));
  if (signal.aborted) return;
  try {
    const answer = await callOperation("GET", `${document.body.dataset.home}/operations/search?text=${part(text)}`, { signal });
    show([...resultsOf(answer), ...pagesOf(text)]);
  } catch (problem) {
    if (!signal.aborted) show(pagesOf(text), problem.message);
  }
};

const open = (option) => {
  if (!option) return;
  dialog().close();
  navigate(option.dataset.address);
};

const move = (step) => {
  const all = options();
  if (all.length) select(all[(all.indexOf(selected()) + step + all.length) % all.length]);
};

const KEYS = { ArrowDown: () => move(1), ArrowUp: () => move(-1), Enter: () => open(selected()) };

document.addEventListener("keydown", (event) => {
  if (event.target !== field() || !KEYS[event.key] || event.isComposing) return;
  event.preventDefault();
  KEYS[event.key]();
});
document.addEventListener("input", ({ target }) => target === field() && find());
document.addEventListener("click", ({ target }) => {
  if (target === dialog()) dialog().close(); // beside it
  else open(target.closest("#search-results > li"));
});

export const openSearch = () => {
  if (!field()) dialog().append(dialog().querySelector("template").content.cloneNode(true)); // Closed, it has no fields of a page.
  dialog().showModal();
  field().select();
  find();
};
