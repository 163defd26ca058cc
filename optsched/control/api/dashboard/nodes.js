/* The nodes by GPU, and what capacity is worth. */
let shownNodes = [];

async function refreshNodes() {
  shownNodes = (await ask("/v1/nodes")).nodes;
}

/** Return who holds each GPU of a node: [job, name of the GPU], null for what is idle, "out" for what is broken. */
function holders(node) {
  const named = node.holders.flatMap(held => held.gpu_ids.map(id => [held.job, id]));
  const nameless = node.holders.flatMap(held => held.gpu_ids.length ? [] : Array(held.gpus).fill([held.job, ""]));
  const squares = [...named.sort((a, b) => a[1].localeCompare(b[1], undefined, {numeric: true})), ...nameless].slice(0, node.gpus);
  const out = node.out.filter(id => !named.some(([, own]) => own === id)).length;
  return Array.from({length: node.gpus}, (_, i) => squares[i] ?? (i >= node.gpus - out ? "out" : null));
}

function showNodes(leaving) {
  const usable = shownNodes.filter(node => node.usable).length;
  write(at("nodes-count"), usable === shownNodes.length ? `${usable}` : `${usable} of ${shownNodes.length} usable`);
  const byName = new Map(shownNodes.map(node => [node.name, node]));
  for (const [i, box] of keyed(at("nodes"), [...byName.keys()], () => el("div", {class: "node"}, el("p"), el("div", {class: "gpus"}))).entries()) {
    const node = shownNodes[i], squares = holders(node);
    const looks = squares.map(held => held === null ? "gpu" : held === "out" ? "gpu out" : `gpu ${markClass(held[0])}${leaving.has(held[0]) ? " leaving" : ""}`);
    const state = JSON.stringify([node.usable, node.reason, node.gpus_in_use, node.gpu_type, squares, looks]);
    if (box.state === state) continue;        // nothing of it has changed
    box.state = state;
    box.className = node.usable ? "node" : "node off";
    box.title = short(`${node.name}${node.reason ? `: ${node.reason}` : ""}`);
    write(box.firstElementChild, `${node.name}${node.gpu_type ? ` · ${node.gpu_type}` : ""} · ${node.gpus_in_use}/${node.gpus}${node.usable ? "" : " · unusable"}`);
    box.lastElementChild.replaceChildren(...squares.map((held, k) => {
      const isHeld = Array.isArray(held);
      return el("div", {class: looks[k], title: short(held === null ? "idle" : held === "out" ? "not given to jobs" : `${held[0] ?? "somebody else's"} ${held[1]}`), ...(isHeld && held[0] ? {"data-job": held[0]} : {})});
    }));
  }
}

function setUpNodes() {
  const jobOf = event => event.target.dataset?.job ?? null;
  at("nodes").onpointerover = event => light(jobOf(event));
  at("nodes").onpointerleave = () => light(null);
  at("nodes").onclick = event => { if (jobOf(event)) void openPanel(jobOf(event)).catch(() => {}); };
}

function showPrices(prices) {
  const dearest = [...prices].sort((a, b) => b.price - a.price).slice(0, 12);
  const row = (kind, cells) => el("tr", {}, ...cells.map((text, i) => el(kind, {class: i ? "n" : "where"}, el("span", {title: short(text)}, short(text)))));
  if (!dearest.length) return at("prices").replaceChildren(el("tr", {}, el("td", {class: "muted"}, "Nothing is scarce.")));
  at("prices").replaceChildren(row("th", ["Capacity", "Used", "Price"]), ...dearest.map(own => row("td", [own.name, `${number(own.used)} of ${number(own.capacity)}`, own.price.toPrecision(3)])));
}
