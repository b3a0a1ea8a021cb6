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
// A form needs only `hx-post`, `hx-patch` or `hx-delete` with an address below `operations/`.

import { clearFieldProblems, showFieldProblem } from "./field_problems.js";

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

export const showToast = (text) => {
  const place = document.getElementById("done");
  place.textContent = text;
  place.classList.add("shown");
  clearTimeout(showToast.timer);
  showToast.timer = setTimeout(() => place.classList.remove("shown"), 5000);
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
  if (done) showToast(done);
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
    const effect = await effectOf(elt);
    if (!elt.isConnected) return null;
    if (!effect) issueRequest(true);
    return effect;
  } catch (problem) {
    if (problem.status === 401) issueRequest(true); // It leads to the sign-in page.
    else if (elt.isConnected) showProblem(elt, "status" in problem ? problem : { message: message("failed") });
    return null;
  } finally {
    asking.delete(elt);
    elt.inert = false;
    elt.removeAttribute("aria-busy");
    focused?.focus();
  }
};

document.addEventListener("htmx:confirm", async (event) => {
  const { confirm, confirmTitle, confirmText, confirmYes, confirmReason, effect: asksForEffect } = attributesOf(event.detail.elt);
  const name = event.detail.elt.closest("[data-name]")?.dataset.name;
  if (confirm === undefined) return;
  event.preventDefault();
  const effect = asksForEffect === undefined ? { items: [], typed: confirm } : await shownEffectOf(event.detail);
  if (!effect) return;
  const id = effect.typed;
  document.getElementById("confirm-effect").replaceChildren(...effect.items);
  document.getElementById("confirm-title").textContent = name ? confirmTitle.replace("{name}", () => name) : confirmTitle;
  document.getElementById("confirm-text").textContent = confirmText ?? "";
  document.getElementById("confirm-expected").textContent = id;
  const typed = document.getElementById("confirm-id");
  const reason = document.getElementById("confirm-reason");
  const yes = document.getElementById("confirm-yes");
  yes.textContent = confirmYes ?? yes.dataset.text;
  typed.value = reason.value = "";
  document.getElementById("confirm-typed").hidden = !id;
  document.getElementById("confirm-asked").hidden = !confirmReason;
  const check = () => (yes.disabled = typed.value !== id || (confirmReason === "required" && !reason.value.trim()));
  typed.oninput = reason.oninput = check;
  check();
  dialog().onclose = () => dialog().returnValue === "yes" && !check() && event.detail.issueRequest(true);
  dialog().returnValue = "no";
  dialog().showModal();
  (id ? typed : confirmReason ? reason : yes).focus();
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
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
  const format = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });
  for (const time of document.querySelectorAll("time[datetime]")) {
    time.textContent = format.format(new Date(time.dateTime));
    time.title = time.dateTime;
  }
};

document.addEventListener("htmx:load", decorate);
decorate();

const loadParts = () => document.querySelector("[data-settings]") && import("./settings_form.js"); // only for pages that need it

document.addEventListener("htmx:load", loadParts);
loadParts();
