/* Windows: maintenance, reservations and drained nodes, as bars over the next days and on the rows of the timeline. */
let windows = [];

async function refreshWindows() {
  windows = (await ask("/v1/windows")).windows;
}

const untilOf = own => own.to_s ?? Infinity;

/** Return what there is of what a window leaves less of. */
const lowered = own => [
  ...Object.entries(own.resources).map(([name, most]) => `${isolated(name)}: ${most}`),
  ...Object.entries(own.quotas).map(([tenant, gpus]) => `tenant ${isolated(tenant)}: at most ${gpus} GPU${gpus === 1 ? "" : "s"}`),
];

/** Return windows that differ in their times alone as one. */
function series() {
  const rows = new Map();
  for (const own of windows) {
    const key = JSON.stringify([own.name, own.nodes, own.tenants, own.users, own.resources, own.quotas]);
    rows.set(key, [...(rows.get(key) ?? []), own]);
  }
  return rows;
}

const period = own => {
  const from = own.from_s <= now_s ? "now" : instant(own.from_s, now_s);
  if (own.to_s === null) return `${from} until it is lifted`;
  const isSameDay = new Date(1000 * own.from_s).toDateString() === new Date(1000 * own.to_s).toDateString();
  return `${from} to ${isSameDay ? written(TIME, own.to_s) : instant(own.to_s, now_s)}`;
};

function showWindows() {
  at("calendar-section").hidden = !windows.length;
  const rows = series(), ends = windows.map(untilOf).filter(s => s < now_s + 14 * 86400), end_s = Math.max(now_s + 86400, ...ends);
  const share = s => 100 * Math.max(0, Math.min(1, (s - now_s) / (end_s - now_s)));
  write(at("calendar-until"), `windows and reservations; the bars go from now to ${written(DAY, end_s)}`);
  keyed(at("calendar"), [...rows.keys()], () => el("div", {class: "window"}, el("b"), el("span"), svg("svg", {viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true"}), el("p", {class: "muted"}))).forEach((box, i) => {
    const same = [...rows.values()][i], own = same[0], [name, times, picture, about] = box.children;
    write(name, own.name);
    write(times, period(own) + (same.length > 1 ? `, then ${same.length - 1} more` : ""));
    box.title = same.map(period).join("\n");
    picture.replaceChildren(...same.filter(each => each.from_s < end_s).map(each => svg("rect", {height: 8, x: share(each.from_s), width: Math.max(0.4, share(untilOf(each)) - share(each.from_s)), class: each.from_s <= now_s ? "on" : ""})));
    const whom = [...own.tenants.map(tenant => `tenant ${isolated(tenant)}`), ...own.users.map(user => `user ${isolated(user)}`)];
    const where = own.nodes.length > 1 ? `${own.nodes.length} nodes: ` : "node ";
    const closed = own.nodes.length ? [where + own.nodes.slice(0, 20).map(isolated).join(", "), whom.length ? `only for ${whom.join(", ")}` : "for nobody"] : [];
    write(about, [...closed, ...lowered(own), own.jobs_there ? `still there: ${own.jobs_there} jobs ${own.jobs.slice(0, 10).join(", ")}` : ""].filter(Boolean).join(" · "));
  });
}

/** Shade the times of the windows of a node. */
function drawWindows(pen, node, x, y, tall, left, right) {
  for (const own of windows) {
    const from = Math.max(left, x(own.from_s)), to = Math.min(right, x(Math.min(untilOf(own), 1e11)));
    if (to <= from || !own.nodes.includes(node)) continue;
    pen.globalAlpha = 0.35;
    pen.fillStyle = fill(pen, {hue: "x", pattern: 1});
    pen.fillRect(from, y, to - from, tall);
    pen.globalAlpha = 1;
  }
}
