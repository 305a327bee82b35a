// Keeps the page up to date, shows what is under the pointer, and obeys a few keys.
// Everything that comes from the server is put in place as nodes: no text becomes markup here
// that was not escaped where the page was made.
"use strict";

const EVERY_MS = 2000;
const main = document.getElementById("main");
const connection = document.getElementById("connection");
let etag = "";
let paused = false;
let leaving = false; // a form was sent: its answer is another page, perhaps for who is signed out

// -- live updates --

async function refresh() {
  if (paused || leaving || document.hidden) return;
  const asked = location.href;
  try {
    const answer = await fetch(asked, {
      headers: { "X-Part": "main", ...(etag && { "If-None-Match": etag }) },
    });
    if (asked !== location.href || paused || leaving) return;
    if (answer.redirected || answer.status === 401) return void location.reload();
    connection.textContent = "";
    if (answer.status === 304) return;
    etag = answer.headers.get("ETag") || "";
    const made = new DOMParser().parseFromString(await answer.text(), "text/html");
    morphChildren(main, made.body);
    showCursor();
  } catch {
    connection.textContent = "Not connected: what is shown is old.";
  }
}

async function keepRefreshing() {
  if (!document.querySelector(".signin")) await refresh();
  setTimeout(keepRefreshing, EVERY_MS);
}

// Makes one node like another, and keeps what a person has opened, chosen or typed.
function morph(node, wanted) {
  if (node.nodeType !== wanted.nodeType || node.nodeName !== wanted.nodeName) {
    node.replaceWith(document.importNode(wanted, true));
  } else if (node.nodeType !== Node.ELEMENT_NODE) {
    if (node.data !== wanted.data) node.data = wanted.data;
  } else {
    morphAttributes(node, wanted);
    morphChildren(node, wanted);
  }
}

function morphAttributes(node, wanted) {
  const isKept = (name) =>
    (name === "open" && node.nodeName === "DETAILS") || (name === "value" && node.nodeName === "INPUT");
  for (const { name } of [...node.attributes]) {
    if (!wanted.hasAttribute(name) && !isKept(name)) node.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (node.getAttribute(name) !== value && !isKept(name)) node.setAttribute(name, value);
  }
}

function morphChildren(node, wanted) {
  const keyed = new Map();
  for (const child of node.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let at = node.firstChild;
  for (const next of [...wanted.childNodes]) {
    const key = next.dataset?.key;
    const same = key ? keyed.get(key) : at && !at.dataset?.key ? at : null;
    if (!same) {
      node.insertBefore(document.importNode(next, true), at);
    } else if (same === at) {
      at = at.nextSibling;
      morph(same, next);
    } else {
      node.insertBefore(same, at);
      morph(same, next);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

// -- charts: one column is chosen in all charts of a group --

const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);
let chosen = null; // {group, index, x, y}

function columnsOf(group) {
  return JSON.parse(group.dataset.columns || "[]");
}

function columnAt(svg, event) {
  const group = svg.closest(".charts");
  const box = svg.getBoundingClientRect();
  const scale = box.width / svg.viewBox.baseVal.width;
  const count = columnsOf(group).length;
  const part = ((event.clientX - box.left) / scale - svg.dataset.left) / svg.dataset.plot;
  const index = Math.floor(part * count);
  return index >= 0 && index < count ? { group, index, x: event.clientX, y: event.clientY } : null;
}

function showCursor() {
  for (const rect of main.querySelectorAll(".cursor")) rect.setAttribute("width", "0");
  tip.hidden = true;
  if (!chosen || !chosen.group.isConnected) return;
  const columns = columnsOf(chosen.group);
  const column = columns[chosen.index];
  if (!column) return;
  const lines = [column[1]];
  for (const svg of chosen.group.querySelectorAll("svg")) {
    const width = svg.dataset.plot / columns.length;
    const rect = svg.querySelector(".cursor");
    rect.setAttribute("x", Number(svg.dataset.left) + chosen.index * width);
    rect.setAttribute("width", Math.max(width, 1));
    const value = JSON.parse(svg.dataset.values)[chosen.index];
    lines.push(`${svg.parentElement.querySelector("figcaption span").textContent}: ${value || "–"}`);
  }
  tip.textContent = lines.join("\n");
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  place(Math.min(chosen.x + 14, innerWidth - box.width - 8), Math.min(chosen.y + 14, innerHeight - box.height - 8));
}

function place(x, y) {
  tip.style.left = `${Math.max(x, 8)}px`; // by the object model: no style is in the markup
  tip.style.top = `${Math.max(y, 8)}px`;
}

main.addEventListener("pointermove", (event) => {
  const svg = event.target.closest?.(".charts svg");
  const found = svg ? columnAt(svg, event) : null;
  if (found || chosen) {
    chosen = found;
    showCursor();
  }
});
main.addEventListener("pointerleave", () => {
  chosen = null;
  showCursor();
});
main.addEventListener("click", (event) => {
  const svg = event.target.closest?.(".charts svg");
  const found = svg ? columnAt(svg, event) : null;
  if (found) location.assign(columnsOf(found.group)[found.index][0]);
});

function moveCursor(group, key) {
  const columns = columnsOf(group);
  const last = columns.length - 1;
  const from = chosen && chosen.group === group ? chosen.index : last + (key === "ArrowLeft" ? 1 : 0);
  const steps = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last };
  if (key === "Enter" && chosen) return void location.assign(columns[chosen.index][0]);
  if (!(key in steps)) return false;
  const box = group.getBoundingClientRect();
  const index = Math.max(0, Math.min(last, steps[key]));
  chosen = { group, index, x: box.left + 60, y: Math.max(box.top, 50) };
  showCursor();
  return true;
}

// -- keys and buttons --

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
  if (event.target.matches(".charts")) {
    if (moveCursor(event.target, event.key)) event.preventDefault();
  }
  if (event.key === "p") pause.click();
  if (event.key === "t") theme.click();
  if (event.key === "Escape") {
    chosen = null;
    showCursor();
  }
});

const pause = document.getElementById("pause");
pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Paused" : "Pause";
  refresh();
});

const theme = document.getElementById("theme");
const THEMES = ["system", "light", "dark"];

function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  theme.textContent = `Theme: ${name}`;
}

function storedTheme() {
  try {
    const found = localStorage.getItem("penstock-theme");
    return THEMES.includes(found) ? found : "system";
  } catch {
    return "system";
  }
}

setTheme(storedTheme());
theme.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(storedTheme()) + 1) % THEMES.length];
  try {
    localStorage.setItem("penstock-theme", next);
  } catch {
    // a browser that keeps nothing: the choice lasts for the page
  }
  setTheme(next);
});

document.addEventListener("visibilitychange", refresh);
document.addEventListener("submit", () => {
  leaving = true;
});
window.addEventListener("pageshow", () => {
  leaving = false;
});
setTimeout(keepRefreshing, EVERY_MS);
