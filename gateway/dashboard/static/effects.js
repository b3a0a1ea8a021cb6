// What a change would do, asked of the operation itself before it is made:
//   data-effect                 on a form: confirm the change if machines get other versions by it; on a button: show
//                               in its confirmation what each ring gets afterwards

import { settingsOf } from "./settings_form.js";

const texts = () => document.getElementById("texts").dataset;

const LISTS = ["held", "offered", "withdrawn", "retired"];

const withValues = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);

const linesOf = (effect) =>
  LISTS.filter((list) => effect[`${list}_total`]).flatMap((list) => {
    const versions = effect[list].map(({ package_id, version, rings }) => `${package_id} ${version}${rings ? ` → ${rings.join(", ")}` : ""}`);
    const count = effect[`${list}_total`];
    return [{ text: withValues(texts()[`effect${list[0].toUpperCase()}${list.slice(1)}`], { count }), versions, more: count - versions.length }];
  });

const ringsOf = (offered) =>
  Object.entries(offered).map(([ring, version]) => ({
    text: withValues(version ? texts().effectRing : texts().effectNothing, { ring, version }),
  }));

const bodyOf = (element) => {
  if (!element.matches("form")) return new URLSearchParams({ ...JSON.parse(element.getAttribute("hx-vals") ?? "{}"), preview: "true" });
  return new URLSearchParams({ ...Object.fromEntries(new FormData(element)), ...settingsOf(element), preview: "true" });
};

// The effect of the request of an element, and the text to type; null if it has none, or cannot be told.
export const effectOf = async (element) => {
  const [method, url] = ["post", "patch"].map((name) => [name.toUpperCase(), element.getAttribute(`hx-${name}`)]).find(([, address]) => address);
  const body = bodyOf(element);
  if (element.dataset.as === "hold") body.set("reason", "-"); // It is required, and has no effect on the rings.
  const response = await fetch(url, { method, body, headers: { "X-CSRF-Token": document.body.dataset.csrfToken } }).catch(() => null);
  if (!response?.ok) return null; // The request itself shows the problem.
  const { effect, offered } = await response.json();
  if (offered) return { lines: ringsOf(offered), typed: "" };
  const lines = linesOf(effect);
  return lines.length ? { lines, typed: effect.offered_total ? String(effect.offered_total) : "" } : null;
};

export const showEffect = (place, lines) => {
  place.replaceChildren(
    ...lines.map(({ text, versions = [], more = 0 }) => {
      const item = document.createElement("li");
      item.textContent = text;
      if (versions.length) {
        const list = document.createElement("ul");
        list.replaceChildren(...[...versions, ...(more ? [withValues(texts().effectMore, { more })] : [])].map((name) => Object.assign(document.createElement("li"), { textContent: name })));
        item.append(list);
      }
      return item;
    }),
  );
};
