/* Use and waiting by tenant, and the rounds. */
const MOST_SHARES = 7, TALL = 120, MARGIN = 54;
let wide = 600;                               // pixels between the axes of the charts that are drawn now

const widthOf = id => Math.max(160, at(id).clientWidth - MARGIN);

function setUpCharts() {
  const widths = new Map(), observer = new ResizeObserver(soon(() => {
    for (const [id, show] of [["use", showUse], ["rounds", showRounds]]) if (widths.get(id) !== widthOf(id)) { widths.set(id, widthOf(id)); show(); }
  }));
  observer.observe(at("use"));
  observer.observe(at("rounds"));
}

function scaleTop(most) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(most, 1e-9)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map(step => step * unit).find(top => top >= most * 0.999) ?? most;
}

/** Return a chart with its axes: `inside` are drawn over lines at 0, half and all of `top`. */
function chart(label, top, format, times, inside, onPoint) {
  const picture = svg("svg", {class: "chart", width: wide + MARGIN, height: TALL + 26, viewBox: `-46 -6 ${wide + MARGIN} ${TALL + 26}`, role: "img", "aria-label": label});
  for (const share of [0, 0.5, 1]) {
    picture.append(svg("line", {class: "grid", x1: 0, x2: wide, y1: TALL * (1 - share), y2: TALL * (1 - share)}));
    picture.append(svg("text", {x: -6, y: TALL * (1 - share) + 4, "text-anchor": "end"}, format(top * share)));
  }
  times.forEach((text, i) => picture.append(svg("text", {x: wide * i / Math.max(1, times.length - 1), y: TALL + 15, "text-anchor": i === 0 ? "start" : i === times.length - 1 ? "end" : "middle"}, text)));
  picture.append(...inside);
  picture.onpointermove = event => {
    const box = picture.getBoundingClientRect(), share = (event.clientX - box.left - 46) / (box.width - MARGIN);
    tip(event, share < 0 || share > 1 ? null : onPoint(share));
  };
  picture.onpointerleave = event => tip(event, null);
  return picture;
}

/** Return the outline of an area between two rows of heights, or of one line. */
function outline(values, top, below = null) {
  const point = (y, i) => `${(wide * i / Math.max(1, values.length - 1)).toFixed(1)} ${(TALL * (1 - Math.min(1, y / top))).toFixed(1)}`;
  const there = values.map((y, i) => (i ? "L" : "M") + point(y, i)).join("");
  return below ? there + below.map((y, i) => "L" + point(y, i)).reverse().join("") + "Z" : there;
}

let used = null;
async function refreshUse() {
  used = await ask(`/v1/usage?hours=${at("hours").value}&by=${at("by").value}`);
  suggest(at("by").value === "user" ? "users" : "tenants", used.shares.map(share => share.name));
  showUse();
}

/** Give shares hues of their own, each that of its name where no larger one has it. */
function hued(shares) {
  const taken = new Set();
  return shares.map(share => {
    let hue = hashed(share.name ?? "") % HUES;
    while (taken.has(hue) && taken.size < HUES) hue = (hue + 1) % HUES;
    taken.add(hue);
    return {...share, hue};
  });
}

function showUse() {
  if (!used) return;
  wide = widthOf("use");
  const sum = rows => Array.from({length: rows[0]?.length ?? 0}, (_, i) => rows.reduce((all, row) => all + row[i], 0));
  const large = [...used.shares].sort((a, b) => weightOf(b) - weightOf(a)), rest = large.slice(MOST_SHARES);
  const shares = hued(large.slice(0, MOST_SHARES).map(share => ({...share, title: share.name ?? (at("by").value === "tenant" ? "no tenant" : "no user")})));
  if (rest.length) shares.push({title: `${rest.length} others`, hue: "x", gpus: sum(rest.map(share => share.gpus)), waiting: sum(rest.map(share => share.waiting))});
  const hours = (used.now_s - used.from_s) / 3600, times = [0, 0.5, 1].map(share => instant(used.from_s + share * 3600 * hours, used.now_s));
  const made = [["gpus", "GPUs held"], ["waiting", "Jobs waiting"]].map(([key, title]) => {
    const capacity = key === "gpus" && shownState ? shownState.gpus_usable : 0;
    const layers = [Array.from({length: shares[0]?.[key].length ?? 2}, () => 0)];
    for (const share of shares) layers.push(layers.at(-1).map((y, i) => y + share[key][i]));
    const top = scaleTop(Math.max(capacity, ...layers.at(-1), 1));
    const areas = shares.map((share, i) => svg("path", {class: `h${share.hue}`, d: outline(layers[i + 1], top, layers[i])}));
    const edges = shares.map((share, i) => svg("path", {class: "edge", d: outline(layers[i + 1], top)}));
    const limit = capacity ? [svg("path", {class: "limit", d: outline([capacity, capacity], top)})] : [];
    const onPoint = where => {
      const i = Math.min(layers[0].length - 1, Math.floor(where * layers[0].length)), lines = shares.filter(share => share[key][i] > 0.005).map(share => `${isolated(share.title.slice(0, 40))}: ${number(share[key][i])}`);
      return [instant(used.from_s + i * used.step_s, used.now_s), ...lines.reverse()].join("\n");
    };
    return [el("h3", {}, title + (capacity ? ` (dashed: the ${capacity.toLocaleString("en")} usable now)` : "")), chart(`${title} over the last ${hours} hours`, top, number, times, [...areas, ...edges, ...limit], onPoint)];
  });
  const last = row => row.at(-1) ?? 0;
  const legend = el("ul", {class: "legend"}, ...shares.map(share => el("li", {title: short(share.title)}, el("i", {class: `swatch h${share.hue}`}), el("bdi", {}, short(share.title).slice(0, 60)), ` ${number(last(share.gpus))} GPUs, ${number(last(share.waiting))} waiting`)));
  at("use").replaceChildren(...(shares.length ? [...made.flat(), legend] : [el("p", {class: "muted"}, "No job has run or waited in this time.")]));
}
const weightOf = share => share.gpus.reduce((all, y) => all + y, 0) + 1e-3 * share.waiting.reduce((all, y) => all + y, 0);

const MOST_TENANTS = 50;
/** Show what tenants are entitled to beside what they used, where use counts. */
async function refreshShares() {
  const tree = await ask("/v1/shares"), tenants = tree.rows.filter(row => !row.is_user).slice(0, MOST_TENANTS);
  at("shares").hidden = !tenants.length;
  const all = tenants.filter(row => row.level === 1).reduce((sum, row) => sum + row.used_gpu_s, 0);
  const cells = row => [row.tenant ?? "no tenant", percent(row.entitled), all ? percent(row.used_gpu_s / all) : "0 %", `${number(row.used_gpu_s / 3600)} GPU h`];
  const line = (kind, texts, level) => el("tr", {}, ...texts.map((text, i) => {
    const span = el("span", {}, short(text));
    if (!i) span.style.paddingInlineStart = `${12 * (Math.min(level, 9) - 1)}px`;
    return el(kind, {class: i ? "n" : "where"}, span);
  }));
  document.querySelector("#shares h3").textContent = `Entitled, and used of late (half as much after ${human(tree.half_life_s)})`;
  document.querySelector("#shares table").replaceChildren(line("th", ["Tenant", "Entitled", "Used", "Counted use"], 1), ...tenants.map(row => line("td", cells(row), row.level)));
}

let shownRounds = [];
async function refreshRounds() {
  shownRounds = (await ask("/v1/rounds?limit=200")).rounds.reverse();
  showRounds();
}

function showRounds() {
  const rounds = shownRounds;
  if (!rounds.length) return at("rounds").replaceChildren(el("p", {class: "muted"}, "No round has been decided yet."));
  wide = widthOf("rounds");
  const sorted = key => rounds.map(key).sort((a, b) => a - b), middle = row => row[Math.floor(row.length / 2)], worst = row => row.at(-1);
  const times = [rounds[0], rounds.at(-1)].map(round => instant(round.at_s, now_s));
  const onPoint = share => {
    const round = rounds[Math.min(rounds.length - 1, Math.round(share * (rounds.length - 1)))];
    return `Round ${round.number}, ${clock(round.at_s)}\n${round.jobs} jobs, ${human(round.wall_s)}, gap ${percent(round.gap)}\n${round.solver}${round.fallback ? `; ${short(round.fallback)}` : ""}`;
  };
  const parts = [["Seconds of each round", round => round.wall_s, human], ["Proven gap", round => round.gap ?? 1, percent]].map(([title, key, format]) => {
    const values = rounds.map(key), top = Math.max(1e-4, worst(sorted(key)));
    const failed = rounds.flatMap((round, i) => round.fallback ? [svg("circle", {cx: wide * i / Math.max(1, rounds.length - 1), cy: TALL * (1 - values[i] / top), r: 3, fill: "var(--bad)"})] : []);
    const line = svg("path", {class: "curve", d: outline(values.length > 1 ? values : [values[0], values[0]], top)});
    return [el("h3", {}, `${title}: now ${format(values.at(-1))}, median ${format(middle(sorted(key)))}, at most ${format(top)}`), chart(`${title} of the last ${rounds.length} rounds`, top, format, times, [line, ...failed], onPoint)];
  });
  const fallen = rounds.filter(round => round.fallback);
  if (fallen.length) parts.push([el("p", {class: "muted"}, `${fallen.length} of ${rounds.length} rounds fell back, the last (${fallen.at(-1).number}) because: ${short(fallen.at(-1).fallback)}`)]);
  at("rounds").replaceChildren(...parts.flat());
}
