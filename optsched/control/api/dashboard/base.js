"use strict";
/* Asks the controller, makes elements, and writes numbers for people. No script here makes HTML of a text: texts become text nodes. */
const LONGEST_TEXT = 300;                     // characters of a name or reason that are shown
const at = id => document.getElementById(id);

class Refusal extends Error {
  constructor(status, sentence) { super(sentence); this.status = status; }
}
class NoAnswer extends Error {}

const store = {                               // a page may be forbidden to store anything
  get(name) { try { return sessionStorage.getItem(name); } catch { return null; } },
  set(name, value) { try { sessionStorage.setItem(name, value); } catch { /* then it is asked for again */ } },
};
let token = store.get("token") ?? "";
const fragment = decodeURIComponent(location.hash.slice(1));
if (fragment && !at(fragment)) {              // the address carried the token: keep it, and show it no longer
  token = fragment;
  store.set("token", token);
  history.replaceState(null, "", location.pathname);
}

/** Return the answer to a request. Raises Refusal, or NoAnswer where none has come in time. */
async function ask(path, method = "GET", wait_ms = 30000) {
  const headers = token ? {Authorization: `Bearer ${token}`} : {};
  let answer, body;
  try {
    answer = await fetch(path, {method, headers, cache: "no-store", signal: AbortSignal.timeout(wait_ms)});
    body = await answer.json();
  } catch (error) { throw new NoAnswer(error.message); }
  if (!answer.ok) throw new Refusal(answer.status, body.error ?? answer.statusText);
  return body;
}

const short = text => (text = String(text ?? ""), text.length > LONGEST_TEXT ? text.slice(0, LONGEST_TEXT) + "…" : text);

function el(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

function svg(name, attributes = {}, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

/** Set a text where it is another: what stays the same costs no layout. */
function write(element, text) {
  text = short(text);
  if (element.textContent !== text) element.textContent = text;
}

/** Return children for these keys, those of before where there are any, in this order. */
function keyed(parent, keys, make) {
  const known = parent.known ??= new Map();
  const wanted = new Set(keys);
  for (const [key, child] of known) if (!wanted.has(key)) { child.remove(); known.delete(key); }
  let before = null;
  return keys.map(key => {
    let child = known.get(key);
    if (!child) known.set(key, child = make(key));
    const place = before ? before.nextSibling : parent.firstChild;
    if (place !== child) parent.insertBefore(child, place);
    return before = child;
  });
}

function human(s) {
  if (s === null || s === undefined || !Number.isFinite(s)) return "";
  const parts = (many, unit, rest, small) => `${Math.floor(many)} ${unit}` + (Math.floor(rest) ? ` ${Math.floor(rest)} ${small}` : "");
  if (s > 0 && s < 0.9995) return Math.max(1, Math.round(1000 * s)) + " ms";
  if (s < 60) return (s && s < 10 ? s.toFixed(1) : Math.round(s)) + " s";
  if (s < 3600) return parts(s / 60, "min", s < 600 ? s % 60 : 0, "s");
  if (s < 86400) return parts(s / 3600, "h", s % 3600 / 60, "min");
  return parts(s / 86400, "d", s % 86400 / 3600, "h");
}
const percent = x => x === null || x === undefined ? "unknown" : (100 * x).toFixed(x >= 5e-6 && x < 0.001 ? 3 : x < 0.1 ? 2 : 1) + " %";
const number = x => x.toLocaleString("en", {maximumFractionDigits: x < 10 ? 1 : 0});
const TIME = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", hourCycle: "h23"});
const SECONDS = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23"});
const DAY = new Intl.DateTimeFormat(undefined, {month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23"});
const LAST_S = 8e12;                          // dates end there
const written = (format, s) => Math.abs(s) < LAST_S ? format.format(1000 * s) : "never";
const clock = s => written(SECONDS, s);
/** Return an instant: the time alone where it is of these hours. */
const instant = (s, now_s) => written(Math.abs(s - now_s) < 43200 ? TIME : DAY, s);

/** Return a name such that its right-to-left characters turn nothing around it. */
const isolated = text => `\u2068${short(text)}\u2069`;

/** Show a text beside the pointer; null hides it. */
function tip(event, text) {
  const box = at("tip");
  box.hidden = text === null;
  if (text === null) return;
  write(box, text);
  const {width, height} = box.getBoundingClientRect();
  box.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
  box.style.top = (event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18) + "px";
}

/** Have `draw` done once before the next picture, however often it is asked for. */
function soon(draw) {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => { waits = false; draw(); });
  };
}
