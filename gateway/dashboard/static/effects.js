// What a change would do, asked of the operation itself before it is made:
//   data-effect                 on a form: confirm the change if machines get other versions by it; on a button: show
//                               in its confirmation what each ring gets afterwards

import { callOperation, isTemporary } from "./operations.js";
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

// `machines` has the number of machines in each ring.
const ringsOf = (offered, machines) =>
  Object.entries(offered).map(([name, version]) => {
    const ring = name in machines ? withValues(texts().effectMachines, { ring: name, count: machines[name] }) : name;
    return { text: withValues(version ? texts().effectRing : texts().effectNothing, { ring, version }) };
  });

const bodyOf = (element) => {
  if (!element.matches("form")) return new URLSearchParams({ ...JSON.parse(element.getAttribute("hx-vals") ?? "{}"), preview: "true" });
  return new URLSearchParams({ ...Object.fromEntries(new FormData(element)), ...settingsOf(element), preview: "true" });
};

const itemOf = ({ text, versions = [], more = 0 }) => {
  const item = document.createElement("li");
  item.textContent = text;
  if (versions.length) {
    const list = Object.assign(document.createElement("ul"), { tabIndex: 0, ariaLabel: text }); // The keyboard scrolls it.
    list.replaceChildren(...[...versions, ...(more ? [withValues(texts().effectMore, { more })] : [])].map((name) => Object.assign(document.createElement("li"), { textContent: name })));
    item.append(list);
  }
  return item;
};

// The effect of the request of an element as items of a list, and the text to type; null if it has none. A change whose
// effect cannot be told now is confirmed without it. Throws the Problem of a request that is refused.
export const effectOf = async (element) => {
  const [method, url] = ["post", "patch"].map((name) => [name.toUpperCase(), element.getAttribute(`hx-${name}`)]).find(([, address]) => address);
  const body = bodyOf(element);
  if (element.dataset.as === "hold") body.set("reason", "-"); // It is required, and has no effect on the rings.
  try {
    const { effect, offered } = await callOperation(method, url, { body });
    if (offered) return { items: ringsOf(offered, JSON.parse(document.getElementById(element.dataset.as).dataset.machines)).map(itemOf), typed: "" };
    const lines = linesOf(effect);
    return lines.length ? { items: lines.map(itemOf), typed: effect.offered_total ? String(effect.offered_total) : "" } : null;
  } catch (problem) {
    if (!isTemporary(problem)) throw problem;
    return { items: [itemOf({ text: withValues(texts().effectUnknown, { reason: problem.message }) })], typed: "" };
  }
};
