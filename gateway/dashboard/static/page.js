// The behaviour of all pages. Attributes in the HTML:
//   data-copy="text"            a button that copies a text
//   data-then="address"         the page after a successful operation, else the current page; `{name}` is a field of the form
//   data-done="text"            the message after a successful operation
//   data-confirm="id"           the text to type before the operation, or "" for a confirmation without typing;
//                               data-confirm-title, -text and -yes are shown with it; data-confirm-reason asks for
//                               the field `reason`: "required", or "optional" if it may be empty
//   data-as="id"                the attributes of another element count, too; `{name}` in its title is the data-name
//                               around the button
//   data-problem                the place for the problem of a form
//   data-undo="address"         the message after the operation offers to undo it for ten seconds: it posts data-undo-fields
//                               to the address; a checkbox without an address is clicked again
// A form needs only `hx-post`, `hx-patch` or `hx-delete` with an address below `operations/`.

import { clearFieldProblems, showFieldProblem } from "./field_problems.js";
import { callOperation } from "./operations.js";

const message = (name) => document.getElementById("texts").dataset[name];

const attributesOf = ({ dataset }) => ({ ...document.getElementById(dataset.as)?.dataset, ...dataset });

// Every request proves that it comes from a page of this session.
document.addEventListener("htmx:configRequest", ({ detail }) => {
  detail.headers["X-CSRF-Token"] = document.body.dataset.csrfToken;
  if (attributesOf(detail.elt).confirmReason) detail.parameters.reason = document.getElementById("confirm-reason").value;
});

// Open a page like a clicked link, which loads only the differences.
export const navigate = (address) => {
  const link = Object.assign(document.createElement("a"), { href: address, hidden: true });
  document.body.append(link);
  htmx.process(link);
  link.click();
  link.remove();
};

const UNDO_TIME = 10_000; // ms

// A message at the edge of the page; with a function `undo` also a button that calls it.
export const showToast = (text, undo) => {
  const place = document.getElementById("done");
  const hide = () => place.classList.remove("shown");
  place.textContent = text;
  if (undo) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "small", textContent: message("undo") });
    button.onclick = () => (hide(), undo());
    place.append(" ", button);
  }
  place.classList.add("shown");
  clearTimeout(showToast.timer);
  showToast.timer = setTimeout(hide, undo ? UNDO_TIME : 5000);
};

const undoing = new WeakSet(); // checkboxes that are clicked again

// What undoes an operation of an element; undefined if nothing does, or if it was itself the undoing.
const undoOf = (elt) => {
  const { undo, undoFields } = attributesOf(elt);
  if (undo === undefined || undoing.delete(elt)) return undefined;
  if (!undo) return () => (undoing.add(elt), elt.click());
  return async () => {
    try {
      await callOperation("POST", undo, { body: new URLSearchParams(undoFields) });
      navigate(location.href);
      showToast(message("undone"));
    } catch (problem) {
      showToast(problem.message);
    }
  };
};

// The response of an operation is JSON, which is never inserted into the page.
const isOperation = (address) => new URL(address, location.href).pathname.includes("/dashboard/operations/");

document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (isOperation(detail.pathInfo.requestPath)) detail.shouldSwap = false;
  // A problem page may replace a page, but never a part of a page.
  else if (isPage(detail.xhr)) detail.shouldSwap = detail.boosted || !detail.isError;
});

const isPage = (xhr) => xhr.getResponseHeader("Content-Type")?.startsWith("text/html");

const placeOfProblem = (element) =>
  (element.closest("form, dialog, [data-problems]") ?? document).querySelector("[data-problem]");

const showProblem = (element, problem) => {
  const form = element.closest("form");
  if (form && showFieldProblem(form, problem)) return;
  const place = placeOfProblem(element);
  if (place) place.textContent = problem.message;
  else showToast(problem.message);
};

const clearProblems = (element) => {
  const form = element.closest("form");
  const place = placeOfProblem(element);
  if (place) place.textContent = "";
  if (form) clearFieldProblems(form);
};

document.addEventListener("htmx:beforeRequest", ({ detail }) => {
  const form = detail.elt.closest("form");
  if (form !== detail.elt && !detail.elt.matches("[data-test]") && form?.matches("[hx-post], [hx-patch], [hx-delete]")) return; // A field is checked; the problem of the form stays.
  clearProblems(detail.elt);
});

document.addEventListener("htmx:afterRequest", ({ detail }) => {
  const { elt, xhr, pathInfo, boosted, successful } = detail;
  if (!pathInfo || xhr.getResponseHeader("HX-Redirect")) return;
  if (!isOperation(pathInfo.requestPath)) return void (xhr.status >= 400 && !boosted && showProblem(elt, problemOf(xhr)));
  if (!successful) return showProblem(elt, problemOf(xhr));
  const { then, done } = attributesOf(elt);
  const event = new CustomEvent("operation", { bubbles: true, cancelable: true, detail: JSON.parse(xhr.responseText) });
  if (elt.dispatchEvent(event)) navigate(then ? fillPlaceholders(then, elt) : location.href); // A page can handle the event itself.
  if (done) showToast(done, undoOf(elt));
});

// After the end of the session the user signs in over the page, and the request is sent again. A link leads to the
// sign-in page, which leads back to the address of the link.
const resumed = new WeakSet(); // elements whose request was confirmed before the sign-in

export const signIn = async () => (await import("./sign_in_dialog.js")).signIn();

document.addEventListener("htmx:beforeOnLoad", async (event) => {
  const { elt, xhr, boosted, requestConfig } = event.detail;
  if (boosted || xhr.status !== 401 || !xhr.getResponseHeader("HX-Redirect")) return;
  event.preventDefault();
  if (!(await signIn()) || !elt.isConnected) return;
  if (elt.matches("[data-switch]")) return elt.click(); // It has flipped back.
  resumed.add(elt);
  htmx.ajax(requestConfig.verb, requestConfig.path, { source: elt });
});

// Failed requests of links.
for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, ({ detail }) => isOperation(detail.pathInfo.requestPath) || showProblem(detail.elt, { message: message("failed") }));
}

const fillPlaceholders = (address, form) =>
  address.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(form.elements[name].value));

const problemOf = (xhr) => {
  const page = isPage(xhr) && new DOMParser().parseFromString(xhr.responseText, "text/html");
  const place = page && page.querySelector("main .problem");
  if (page) return { message: place?.textContent ?? message("failed"), params: { ...place?.dataset } };
  try {
    const { detail, ...problem } = JSON.parse(xhr.responseText);
    return { message: detail, ...problem };
  } catch {
    return { message: message("failed") };
  }
};

// Operations that cannot be repeated need the typed id.
const dialog = () => document.getElementById("confirm");

const asking = new WeakSet(); // elements whose effect is being asked for

// The effect to confirm; null if there is nothing to confirm: the request is issued, or refused, or its page is gone.
const shownEffectOf = async ({ elt, issueRequest }) => {
  if (asking.has(elt)) return null;
  asking.add(elt);
  clearProblems(elt);
  elt.inert = true; // What is confirmed is what is sent.
  elt.setAttribute("aria-busy", "true");
  const focused = document.activeElement;
  try {
    const { effectOf } = await import("./effects.js"); // Most pages and visits do not need it.
    const effect = await effectOf(elt).catch(async (problem) => {
      if (problem.status !== 401 || !(await signIn())) throw problem;
      return effectOf(elt);
    });
    if (!elt.isConnected) return null;
    if (!effect) issueRequest(true);
    return effect;
  } catch (problem) {
    if (elt.isConnected) showProblem(elt, "status" in problem ? problem : { message: message("failed") });
    return null;
  } finally {
    asking.delete(elt);
    elt.inert = false;
    elt.removeAttribute("aria-busy");
    focused?.focus();
  }
};

// Ask in the dialog. `typed` must be typed first, and a `reason` that is "required" be given.
export const ask = ({ title, text = "", yes, typed: id = "", reason: asksFor, items = [] }, confirmed) => {
  document.getElementById("confirm-effect").replaceChildren(...items);
  document.getElementById("confirm-title").textContent = title;
  document.getElementById("confirm-text").textContent = text;
  document.getElementById("confirm-expected").textContent = id;
  const typed = document.getElementById("confirm-id");
  const reason = document.getElementById("confirm-reason");
  const button = document.getElementById("confirm-yes");
  button.textContent = yes ?? button.dataset.text;
  typed.value = reason.value = "";
  document.getElementById("confirm-typed").hidden = !id;
  document.getElementById("confirm-asked").hidden = !asksFor;
  const check = () => (button.disabled = typed.value !== id || (asksFor === "required" && !reason.value.trim()));
  typed.oninput = reason.oninput = check;
  check();
  dialog().onclose = () => dialog().returnValue === "yes" && !check() && confirmed();
  dialog().returnValue = "no";
  dialog().showModal();
  (id ? typed : asksFor ? reason : button).focus();
};

document.addEventListener("htmx:confirm", async (event) => {
  if (resumed.delete(event.detail.elt)) return;
  const { confirm, confirmTitle, confirmText, confirmYes, confirmReason, effect: asksForEffect } = attributesOf(event.detail.elt);
  const name = event.detail.elt.closest("[data-name]")?.dataset.name;
  if (confirm === undefined) return;
  event.preventDefault();
  const effect = asksForEffect === undefined ? { items: [], typed: confirm } : await shownEffectOf(event.detail);
  if (!effect) return;
  const title = name ? confirmTitle.replace("{name}", () => name) : confirmTitle;
  ask({ title, text: confirmText, yes: confirmYes, reason: confirmReason, ...effect }, () => event.detail.issueRequest(true));
});

// Enter confirms only after what is required was typed.
document.addEventListener("keydown", (event) => {
  if (!["confirm-id", "confirm-reason"].includes(event.target.id) || event.key !== "Enter") return;
  event.preventDefault();
  document.getElementById("confirm-yes").click();
});

document.addEventListener("click", async ({ target }) => {
  const copy = target.closest("[data-copy]");
  if (copy) {
    await copyText(copy.dataset.copy);
    showToast(message("copied"));
  }
  for (const menu of document.querySelectorAll(".more[open]")) if (!menu.contains(target)) menu.open = false;
  if (target.closest("[data-theme-switch]")) switchTheme();
});

// Browsers have a clipboard over TLS only. Over plain HTTP they copy the selection.
const copyText = async (text) => {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const focused = document.activeElement;
  const place = Object.assign(document.createElement("textarea"), { value: text, className: "visually-hidden" });
  document.body.append(place);
  place.select();
  document.execCommand("copy");
  place.remove();
  focused?.focus();
};

document.addEventListener("keydown", ({ key, target }) => {
  const menu = key === "Escape" && target.closest?.(".more[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

const THEMES = ["auto", "light", "dark"];

const switchTheme = () => {
  const next = THEMES[(THEMES.indexOf(localStorage.getItem("theme") ?? "auto") + 1) % THEMES.length];
  if (next === "auto") {
    localStorage.removeItem("theme");
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem("theme", next);
    document.documentElement.dataset.theme = next;
  }
  decorate();
};

// Show the controls that need scripts, and convert times to the time zone of the browser.
const decorate = () => {
  for (const button of document.querySelectorAll("[data-theme-switch]")) {
    button.hidden = false;
    button.textContent = button.dataset[localStorage.getItem("theme") ?? "auto"];
  }
  for (const button of document.querySelectorAll("[data-copy], [data-search]")) button.hidden = false;
  for (const field of document.querySelectorAll("[data-utc-minutes]")) field.value = -new Date().getTimezoneOffset();
  const format = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });
  for (const time of document.querySelectorAll("time[datetime]")) {
    time.textContent = format.format(new Date(time.dateTime));
    time.title = time.dateTime;
  }
};

document.addEventListener("htmx:load", decorate);
decorate();

// A thin bar while a page is loaded, and a line while the browser is offline.
const showLoading = (isLoading) => ({ detail }) => detail.boosted && document.documentElement.classList.toggle("loading", isLoading);

document.addEventListener("htmx:beforeSend", showLoading(true));
document.addEventListener("htmx:afterRequest", showLoading(false));

const showOffline = () => (document.getElementById("offline").hidden = navigator.onLine);

for (const name of ["online", "offline"]) addEventListener(name, showOffline);
document.addEventListener("htmx:load", showOffline);
showOffline();

// The search: Ctrl-K, Cmd-K, or a slash outside of fields.
const search = async () => (await import("./search.js")).openSearch();

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  const isShortcut = (event.ctrlKey || event.metaKey) && key.toLowerCase() === "k";
  const isSlash = key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !target.closest?.("input, textarea, select, [contenteditable]");
  if ((!isShortcut && !isSlash) || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  search();
});
document.addEventListener("click", ({ target }) => target.closest("[data-search]") && search());

// Scripts of the pages that have these elements.
const PARTS = {
  "main :is(form[hx-post], form[hx-patch], form[data-version-form])": "unsaved.js",
  "[data-settings]": "settings_form.js",
  "[data-suggest]": "suggestions.js",
  "[data-version-form], [data-publish-rows]": "version_form.js",
  "[data-issues], [data-deletes], [data-select]": "clients.js",
};

const loaded = new Set();

// The content waits for its scripts: what is clicked or typed before would have no effect.
const loadParts = async () => {
  const missing = Object.entries(PARTS).filter(([elements, script]) => !loaded.has(script) && document.querySelector(elements));
  if (!missing.length) return;
  const main = document.querySelector("main");
  main.inert = true;
  try {
    await Promise.all(missing.map(([, script]) => import(`./${script}`).then(() => loaded.add(script))));
  } finally {
    main.inert = false;
  }
};

document.addEventListener("htmx:load", loadParts);
loadParts();
