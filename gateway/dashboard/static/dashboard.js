// What every page does. Pages say in their HTML what they want of it:
//   data-copy="text"            a button that copies a text
//   data-then="address"         where a form or button leads once its operation is done; without it the page is renewed;
//                               a name in braces in it stands for what the form has in the field of that name
//   data-done="text"            what is said then
//   data-confirm="id"           what must be typed before the operation is done; data-confirm-title and -text say why, -yes what its button says
//   data-problem                where, within a form, its problem is told
// A form with `hx-post`, `hx-patch` or `hx-delete` of an address below `operations/` needs nothing else.

const text = (name) => document.getElementById("texts").dataset[name];

// Every request shows that it comes from a page of this session.
document.addEventListener("htmx:configRequest", ({ detail }) => {
  detail.headers["X-CSRF-Token"] = document.body.dataset.csrfToken;
});

// Go to a page as if its link had been followed: only what differs is loaded.
export const go = (address) => {
  const link = Object.assign(document.createElement("a"), { href: address, hidden: true });
  document.body.append(link);
  htmx.process(link);
  link.click();
  link.remove();
};

export const say = (words) => {
  const place = document.getElementById("done");
  place.textContent = words;
  place.classList.add("shown");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => place.classList.remove("shown"), 5000);
};

// An operation's answer is JSON: nothing of it goes into the page.
const isOperation = (address) => new URL(address, location.href).pathname.includes("/dashboard/operations/");

document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (isOperation(detail.pathInfo.requestPath)) detail.shouldSwap = false;
  // A page of a problem is shown in place of a page, but is nothing to put in place of a part of one.
  else if (isPage(detail.xhr)) detail.shouldSwap = detail.boosted || !detail.isError;
});

const isPage = (xhr) => xhr.getResponseHeader("Content-Type")?.startsWith("text/html");

const placeOfProblem = (element) =>
  (element.closest("form, dialog, [data-problems]") ?? document).querySelector("[data-problem]");

const tell = (element, words) => {
  const place = placeOfProblem(element);
  if (place) place.textContent = words;
  else say(words);
};

document.addEventListener("htmx:beforeRequest", ({ detail }) => {
  const place = placeOfProblem(detail.elt);
  if (place) place.textContent = "";
});

document.addEventListener("htmx:afterRequest", ({ detail }) => {
  const { elt, xhr, pathInfo, boosted, successful } = detail;
  if (!pathInfo || xhr.getResponseHeader("HX-Redirect")) return;
  if (!isOperation(pathInfo.requestPath)) return void (xhr.status >= 400 && !boosted && tell(elt, problemOf(xhr)));
  if (!successful) return tell(elt, problemOf(xhr));
  const { then, done } = elt.dataset;
  const event = new CustomEvent("operation", { bubbles: true, cancelable: true, detail: JSON.parse(xhr.responseText) });
  if (elt.dispatchEvent(event)) go(then ? filled(then, elt) : location.href); // A page may do something else with what it is told.
  if (done) say(done);
});

// Without an answer nothing becomes of a link, either.
for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, ({ detail }) => isOperation(detail.pathInfo.requestPath) || tell(detail.elt, text("failed")));
}

const filled = (address, form) =>
  address.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(form.elements[name].value));

const problemOf = (xhr) => {
  const page = isPage(xhr) && new DOMParser().parseFromString(xhr.responseText, "text/html");
  if (page) return page.querySelector("main .problem")?.textContent ?? text("failed");
  try {
    return JSON.parse(xhr.responseText).detail;
  } catch {
    return text("failed");
  }
};

// What cannot be undone is done when its id was typed.
const dialog = () => document.getElementById("confirm");

document.addEventListener("htmx:confirm", (event) => {
  const { confirm: wanted, confirmTitle, confirmText, confirmYes } = event.detail.elt.dataset;
  if (wanted === undefined) return;
  event.preventDefault();
  document.getElementById("confirm-title").textContent = confirmTitle;
  document.getElementById("confirm-text").textContent = confirmText ?? "";
  document.getElementById("confirm-wanted").textContent = wanted;
  const typed = document.getElementById("confirm-id");
  const yes = document.getElementById("confirm-yes");
  yes.textContent = confirmYes ?? yes.dataset.text;
  typed.value = "";
  yes.disabled = true;
  typed.oninput = () => (yes.disabled = typed.value !== wanted);
  dialog().onclose = () => dialog().returnValue === "yes" && typed.value === wanted && event.detail.issueRequest(true);
  dialog().returnValue = "no";
  dialog().showModal();
  typed.focus();
});

// Enter in the field is a yes once the id is right, and nothing before.
document.addEventListener("keydown", (event) => {
  if (event.target.id !== "confirm-id" || event.key !== "Enter") return;
  event.preventDefault();
  document.getElementById("confirm-yes").click();
});

document.addEventListener("click", async ({ target }) => {
  const copy = target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(copy.dataset.copy);
    say(text("copied"));
  }
  if (target.closest("[data-theme-switch]")) switchTheme();
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
  dress();
};

// What needs scripts is shown by scripts, and times are the reader's own.
const dress = () => {
  for (const button of document.querySelectorAll("[data-theme-switch]")) {
    button.hidden = false;
    button.textContent = button.dataset[localStorage.getItem("theme") ?? "auto"];
  }
  if (navigator.clipboard) for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
  const format = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });
  for (const time of document.querySelectorAll("time[datetime]")) {
    time.textContent = format.format(new Date(time.dateTime));
    time.title = time.dateTime;
  }
};

document.addEventListener("htmx:load", dress);
dress();
