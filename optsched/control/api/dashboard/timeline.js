/* Who held which GPU, over time: a canvas that draws the rows and times in view. Attempts are kept for as far back as was looked, and what is new is added. */
const ROW = 14, GAP = 6, AXIS = 20, MOST_ROWS = 64, MOST_HOURS = 168, SHORTEST_S = 30;
const stays = new Map();                      // by job, attempt and place
let lanes = [], height = 0, reach_s = 7200, seen_s = null, view = {length_s: 7200, end_s: null};   // end_s null: the present
const canvas = document.querySelector("#timeline canvas"), frame = at("timeline");
const labelWidth = () => frame.clientWidth < 600 ? 74 : 140;
const viewEnd = () => view.end_s ?? now_s;
const drawTimeline = soon(draw);

/** Ask for the attempts that are missing: all in reach, or those since the last answer. */
async function refreshHistory(whole = false) {
  const back_s = whole || seen_s === null ? reach_s : Math.min(reach_s, now_s - seen_s + 120);
  const past = await ask(`/v1/history?hours=${Math.max(0.02, back_s / 3600).toFixed(4)}`);
  if (whole) stays.clear();
  for (const stay of past.stays) stays.set(JSON.stringify([stay.job, stay.attempt, stay.started_s, stay.job === null ? stay.placement : 0]), stay);
  seen_s = past.now_s;
  for (const [key, stay] of stays) if ((stay.ended_s ?? seen_s) < seen_s - reach_s) stays.delete(key);
}

const gone = stay => stay.ended_s ?? Infinity;

/** Give each stay its rows: those of its GPUs where they have names, else the first that are free. */
function layOut(nodes) {
  const byNode = new Map(nodes.map(node => [node.name, {node, ids: new Set(), stays: []}]));
  for (const stay of [...stays.values()].sort((a, b) => a.started_s - b.started_s)) {
    for (const held of stay.placement) {
      const own = byNode.get(held.node);
      own?.stays.push([stay, held]);
      for (const id of held.gpu_ids) own?.ids.add(id);
    }
  }
  lanes = [];
  height = AXIS;
  for (const {node, ids, stays: inside} of byNode.values()) {
    const order = new Map([...ids].sort((a, b) => a.localeCompare(b, undefined, {numeric: true})).map((id, i) => [id, i]));
    const rows = Array.from({length: Math.min(MOST_ROWS, Math.max(1, node.gpus))}, () => []);
    for (const [stay, held] of inside) {
      let mine = held.gpu_ids.map(id => Math.min(order.get(id), rows.length - 1));
      if (!mine.length) {
        const free = rows.map((_, i) => i).filter(i => gone(rows[i].at(-1) ?? {ended_s: 0}) <= stay.started_s);
        mine = free.slice(0, Math.max(1, held.gpus));
        while (mine.length < Math.max(1, held.gpus) && rows.length < MOST_ROWS && !node.gpus) { mine.push(rows.length); rows.push([]); }
        if (!mine.length) mine = [rows.length - 1];
      }
      mine.forEach((row, i) => { rows[row].push(stay); if (i === 0) (stay.first ??= new Map()).set(node.name, row); });
    }
    lanes.push({node, top: height, rows});
    height += ROW * rows.length + GAP;
  }
  at("rows").style.height = Math.max(0, height - canvasHeight()) + "px";
}
const canvasHeight = () => Math.min(Math.max(height, 60), 438);

function draw() {
  const width = frame.clientWidth, tall = canvasHeight(), scale = devicePixelRatio || 1;
  if (!width || !now_s) return;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(tall * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(tall * scale);
    canvas.style.width = width + "px";
    canvas.style.height = tall + "px";
  }
  const pen = canvas.getContext("2d"), left = labelWidth(), end_s = viewEnd(), from_s = end_s - view.length_s;
  const x = s => left + (width - left) * (s - from_s) / view.length_s;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.fillStyle = colour("paper");
  pen.fillRect(0, 0, width, tall);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const top = frame.scrollTop;
  const inView = lanes.filter(lane => lane.top - top + ROW * lane.rows.length >= AXIS && lane.top - top <= tall);
  pen.fillStyle = colour("idle");
  for (const lane of inView) pen.fillRect(left, lane.top - top, width - left, ROW * lane.rows.length - 1);
  for (const lane of inView) drawWindows(pen, lane.node.name, x, lane.top - top, ROW * lane.rows.length - 1, left, width);
  drawTimes(pen, from_s, end_s, x, left, width, tall);
  let bars = 0;
  for (const lane of inView) {
    const y = lane.top - top, size = ROW * lane.rows.length;
    pen.save();
    pen.beginPath();
    pen.rect(left, Math.max(AXIS, y), width - left, size);
    pen.clip();
    lane.rows.forEach((row, i) => { if (y + ROW * i > AXIS - ROW && y + ROW * i < tall) for (const stay of row) bars += drawStay(pen, stay, x, y + ROW * i, left, width, stay.first.get(lane.node.name) === i); });
    pen.restore();
    pen.fillStyle = lane.node.usable ? colour("ink") : colour("bad");
    if (y + ROW / 2 > AXIS) pen.fillText(clipped(pen, lane.node.name, left - 8), 2, y + ROW / 2);
  }
  if (now_s < end_s) { pen.fillStyle = colour("accent"); pen.fillRect(x(now_s), AXIS - 4, 1.5, tall); }
  canvas.dataset.bars = bars;
  write(at("span"), `${human(view.length_s)} to ${view.end_s === null ? "now" : instant(end_s, now_s)}`);
}

const cut = new Map();                        // widths of texts, measured once
function clipped(pen, text, width) {
  text = text.slice(0, 80);
  const key = `${Math.round(width)} ${text}`;
  if (cut.size > 4000) cut.clear();
  if (!cut.has(key)) {
    let kept = text;
    while (kept && pen.measureText(kept + (kept === text ? "" : "…")).width > width) kept = kept.slice(0, -1);
    cut.set(key, kept === text ? text : kept && kept + "…");
  }
  return cut.get(key);
}

function drawStay(pen, stay, x, y, left, right, isFirst) {
  const end_s = stay.ended_s ?? now_s, from = Math.max(left - 2, x(stay.started_s)), to = Math.min(right + 2, x(end_s));
  if (to < left || from > right) return 0;
  const look = mark(stay.job), tall = ROW - 2;
  pen.globalAlpha = lit === null || lit === stay.job ? 1 : 0.25;
  pen.fillStyle = fill(pen, look);
  const work = Math.max(from, x(Math.min(end_s, stay.work_from_s))), saves = Math.min(to, x(Math.min(end_s, stay.asked_s ?? end_s)));
  pen.fillRect(from, y, Math.max(1.5, to - from), tall);
  pen.fillStyle = colour("idle");
  if (work - from >= 1) pen.fillRect(from, y, work - from, tall / 2);
  if (to - saves >= 1) pen.fillRect(Math.max(from, saves), y, to - Math.max(from, saves), tall / 2);
  if (["preempt", "migrate", "resize"].includes(stay.why) && stay.ended_s !== null && to <= right) {
    pen.fillStyle = colour("bad");
    pen.fillRect(to - 3, y - 1, 3, tall + 2);
  }
  if (isFirst && saves - work > 36 && stay.job) {
    const text = clipped(pen, stay.job, saves - work - 8), back = look.hue === "x" ? "#808080" : colour(`c${look.hue}`);
    pen.fillStyle = back;
    if (look.pattern && text) pen.fillRect(work + 2, y + 1, pen.measureText(text).width + 4, tall - 2);
    pen.fillStyle = inkOn(back);
    pen.fillText(text, work + 4, y + tall / 2 + 0.5);
  }
  pen.globalAlpha = 1;
  return 1;
}

const STEPS = [10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800];
function drawTimes(pen, from_s, end_s, x, left, width, tall) {
  const step = STEPS.find(step => (width - left) * step / view.length_s > 84) ?? 604800, zone_s = -60 * new Date(1000 * end_s).getTimezoneOffset();
  pen.fillStyle = colour("paper");
  pen.fillRect(0, 0, width, AXIS - 3);
  pen.textAlign = "center";
  for (let s = Math.ceil((from_s + zone_s) / step) * step - zone_s; s <= end_s; s += step) {
    pen.fillStyle = colour("muted");
    const label = written(step < 60 ? SECONDS : step < 43200 ? TIME : DAY, s);
    if (x(s) < width - 22) pen.fillText(label, Math.max(left + 18, x(s)), 9);
    pen.fillStyle = colour("line");
    pen.fillRect(x(s), AXIS - 4, 1, tall);
  }
  pen.textAlign = "start";
}

/** Show other times, and ask for those that were not asked for yet. */
function look(length_s, end_s) {
  view.length_s = Math.max(SHORTEST_S, Math.min(3600 * MOST_HOURS, length_s));
  view.end_s = end_s === null || end_s >= now_s ? null : Math.max(end_s, now_s - 3600 * MOST_HOURS + view.length_s);
  drawTimeline();
  const needed_s = now_s - viewEnd() + view.length_s;
  if (needed_s > reach_s) {
    reach_s = Math.min(3600 * MOST_HOURS, Math.max(needed_s, 2 * reach_s));
    lookFurther();
  }
}
let further = null;
function lookFurther() {
  clearTimeout(further);
  further = setTimeout(() => refreshHistory(true).then(() => { layOut(shownNodes); drawTimeline(); }).catch(() => {}), 200);
}

/** Zoom about an instant that stays where it is on the screen. */
function zoom(factor, about_s = viewEnd()) {
  const length_s = Math.max(SHORTEST_S, Math.min(3600 * MOST_HOURS, view.length_s * factor));
  look(length_s, view.end_s === null && about_s >= now_s - 1e-3 ? null : about_s + (viewEnd() - about_s) * length_s / view.length_s);
}

const move = share => look(view.length_s, viewEnd() + share * view.length_s);
const DOES = {left: () => move(-0.25), right: () => move(0.25), in: () => zoom(0.5), out: () => zoom(2), now: () => look(view.length_s, null)};

function stayAt(event) {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  if (x < labelWidth() || y < AXIS) return null;
  const at_s = viewEnd() - view.length_s * (1 - (x - labelWidth()) / (frame.clientWidth - labelWidth()));
  const slack_s = 2 * view.length_s / frame.clientWidth, tall = y + frame.scrollTop;
  const lane = lanes.find(lane => tall >= lane.top && tall < lane.top + ROW * lane.rows.length);
  const row = lane?.rows[Math.floor((tall - lane.top) / ROW)] ?? [];
  const stay = row.findLast(stay => stay.started_s - slack_s <= at_s && at_s <= (stay.ended_s ?? now_s) + slack_s);
  return stay ? {stay, lane} : null;
}

function setUpTimeline() {
  for (const button of document.querySelectorAll("#timeline-section [data-do]")) button.onclick = DOES[button.dataset.do];
  frame.onkeydown = event => {
    const does = {ArrowLeft: DOES.left, ArrowRight: DOES.right, "+": DOES.in, "=": DOES.in, "-": DOES.out, End: DOES.now, Home: () => look(view.length_s, now_s - reach_s + view.length_s)}[event.key];
    if (does && !event.ctrlKey && !event.metaKey) { does(); event.preventDefault(); }
  };
  const perPixel = () => view.length_s / (frame.clientWidth - labelWidth());
  frame.addEventListener("wheel", event => {
    if (event.ctrlKey || event.metaKey) {
      const share = (event.clientX - canvas.getBoundingClientRect().left - labelWidth()) * perPixel();
      zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 100), viewEnd() - view.length_s + share);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) look(view.length_s, viewEnd() + (event.deltaX || event.deltaY) * perPixel());
    else return;
    event.preventDefault();
  }, {passive: false});
  const fingers = new Map();
  let moved = 0;
  canvas.onpointerdown = event => { fingers.set(event.pointerId, event.clientX); moved = 0; canvas.setPointerCapture(event.pointerId); };
  canvas.onpointermove = event => {
    const before = fingers.get(event.pointerId);
    if (before === undefined) return point(event);
    const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, x]) => x), dx = event.clientX - before;
    moved += Math.abs(dx);
    if (others.length) zoom(Math.max(1, Math.abs(before - others[0])) / Math.max(1, Math.abs(event.clientX - others[0])));
    else if (moved > 4) look(view.length_s, viewEnd() - dx * perPixel());
    fingers.set(event.pointerId, event.clientX);
  };
  canvas.onpointerup = canvas.onpointercancel = event => {
    const known = fingers.delete(event.pointerId), there = known && event.type === "pointerup" && moved <= 4 ? stayAt(event) : null;
    if (there?.stay.job) void openPanel(there.stay.job).catch(() => {});
  };
  canvas.onpointerleave = event => { tip(event, null); light(null); };
  frame.onscroll = drawTimeline;
  new ResizeObserver(drawTimeline).observe(frame);
}

function point(event) {
  const there = stayAt(event);
  light(there?.stay.job ?? null);
  if (!there) return tip(event, null);
  const {stay, lane} = there, until = stay.ended_s === null ? "now" : instant(stay.ended_s, now_s);
  tip(event, `${isolated(stay.job ?? "somebody else's")} · attempt ${stay.attempt} · ${isolated(lane.node.name)}\n${instant(stay.started_s, now_s)} to ${until}, ${human((stay.ended_s ?? now_s) - stay.started_s)}${stay.why ? `\nasked to stop: ${stay.why}` : ""}`);
}
