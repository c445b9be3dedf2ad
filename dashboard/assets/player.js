/* The player: decodes a Film, evaluates it at any moment, paints it, and offers the controls.

   const player = await window.chunkscopePlayer(root, filmBytes, options)

   One file without dependencies: the dashboard's page loads it, and so does the HTML export. What a
   film holds is documented in dashboard/film.py; `at` is the twin of dashboard/scene.py, and a test
   holds the two to the same primitives. */

(() => {
  "use strict";

  const KINDS = ["rect", "line", "poly", "text", "clock", "pick"];
  const [RECT, LINE, POLY, TEXT, CLOCK, PICK] = [0, 1, 2, 3, 4, 5];
  const [STATIC, STATE, MOTION] = [0, 1, 2];
  const SPEEDS = [0.25, 0.5, 1, 2, 4];
  const MAX_SEGMENTS = 32;

  // ---- The film ----

  const ARRAYS = {
    u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array,
  };

  /* Return the film in gzip'd bytes (ArrayBuffer, typed array, or base64 text), or a decoded one. */
  async function decode(bytes) {
    if (bytes.columns && bytes.panels) return bytes; // decoded already
    if (typeof bytes === "string") bytes = Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0));
    const unzipped = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const buffer = await new Response(unzipped).arrayBuffer();
    const magic = new TextDecoder().decode(new Uint8Array(buffer, 0, 8));
    if (magic !== "CSFILM1\n") throw new Error(`no film: begins with ${JSON.stringify(magic)}`);
    const start = 12 + new DataView(buffer).getUint32(8, true);
    const film = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 12, start - 12)));
    const columns = {};
    for (const { name, type, offset, length } of film.columns) {
      columns[name] = new ARRAYS[type](buffer, start + offset, length);
    }
    film.columns = columns;
    return film;
  }

  const eased = (p) => 0.65 * p + 0.35 * (p * p * (3 - 2 * p));
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  /* Return the time of the trace at film time t, in ns since the call began. */
  function traceNs({ s, ns }, t) {
    if (t <= s[0]) return ns[0];
    for (let k = 0; k < s.length - 1; k++) {
      if (t < s[k + 1]) return ns[k] + ((t - s[k]) / (s[k + 1] - s[k])) * (ns[k + 1] - ns[k]);
    }
    return ns[ns.length - 1];
  }

  /* Return the first film time at which the trace's time is `at` ns. */
  function filmSeconds({ s, ns }, at) {
    if (at <= ns[0]) return s[0];
    for (let k = 0; k < s.length - 1; k++) {
      if (at <= ns[k + 1] && ns[k + 1] > ns[k]) {
        return s[k] + ((at - ns[k]) / (ns[k + 1] - ns[k])) * (s[k + 1] - s[k]);
      }
    }
    return s[s.length - 1];
  }

  /* Return a time as text in the clock's unit and decimals. */
  function clockText(clock, ns) {
    const scale = 10 ** clock.decimals;
    const whole = Math.floor((ns / clock.unit_ns) * scale + 0.5);
    if (clock.decimals === 0) return String(whole);
    const fraction = String(whole % scale).padStart(clock.decimals, "0");
    return `${Math.floor(whole / scale)}.${fraction}`;
  }

  const shown = (c, row, t) => c.t0[row] <= t && t < c.t1[row];

  function progress(c, row, t) {
    const p = (t - c.t0[row]) / (c.t1[row] - c.t0[row]);
    return c.ease[row] === 1 ? eased(p) : p;
  }

  const between = (array, at, step, p) => array[at] + (array[at + step] - array[at]) * p;

  /* Write the geometry of a row after a share p of its time into `out` (4 numbers). */
  function geometry(c, row, p, out) {
    for (let k = 0; k < 4; k++) {
      const a = c.a[4 * row + k];
      out[k] = a + (c.b[4 * row + k] - a) * p;
    }
    return out;
  }

  function textOf(film, row, t) {
    const text = film.texts[film.columns.text[row]];
    if (film.columns.kind[row] !== CLOCK) return text;
    return text.replaceAll("{}", clockText(film.clock, traceNs(film.clock, t)));
  }

  /* Return what the film shows at film time t, in the order in which it is painted. */
  function at(film, t) {
    const c = film.columns;
    t = clamp(t, 0, film.duration);
    const prims = [];
    for (let row = 0; row < film.rows; row++) {
      if (!shown(c, row, t)) continue;
      const p = progress(c, row, t);
      const g = geometry(c, row, p, [0, 0, 0, 0]);
      const kind = c.kind[row];
      const points = [];
      if (kind === POLY) {
        for (let k = c.point[row]; k < c.point[row] + c.n_points[row]; k++) {
          points.push([c.points[2 * k] + g[0], c.points[2 * k + 1] + g[1]]);
        }
      }
      prims.push({
        row, kind: KINDS[kind], panel: film.panels[c.panel[row]].name, layer: c.layer[row],
        geometry: g, opacity: between(c.opacity, 2 * row, 1, p), style: c.style[row],
        text: kind === TEXT || kind === CLOCK ? textOf(film, row, t) : "",
        points: kind === POLY ? points : null, ref: film.refs[c.ref[row]],
      });
    }
    return prims;
  }

  /* Return the index of the step shown at film time t, or null where the film has none. */
  function stepAt(film, t) {
    let found = film.steps.length ? 0 : null;
    film.steps.forEach((step, k) => { if (step.start_s <= t) found = k; });
    return found;
  }

  /* Return the short name by which a link remembers a thing of the film. */
  function refKey(ref) {
    if (!ref) return null;
    if (ref.kind === "message") return String(ref.send ?? ref.recv ?? ref.reduce);
    if (ref.kind === "cell") return `r${ref.rank}s${ref.slot}`;
    if (ref.kind === "rank") return `r${ref.rank}`;
    return null;
  }

  // ---- Painting ----

  /* Paints some panels of a film on three canvases, one for each layer, in one element. */
  class Pane {
    constructor({ element, panels, inset }) {
      this.element = element;
      this.panels = panels;
      this.inset = inset ?? -1; // half a hairline lies outside of a panel
      element.classList.add("cs-pane");
      this.canvases = [STATIC, STATE, MOTION].map(() => {
        const canvas = document.createElement("canvas");
        canvas.setAttribute("aria-hidden", "true");
        element.append(canvas);
        return canvas;
      });
      this.contexts = this.canvases.map((canvas) => canvas.getContext("2d"));
      this.out = [0, 0, 0, 0];
    }

    load(film) {
      const c = film.columns;
      this.film = film;
      const wanted = film.panels.map(({ name }) => !this.panels || this.panels.includes(name));
      const framed = film.panels.filter((p, k) => wanted[k] && p.name !== "frame");
      const hasBar = film.panels.some((p, k) => wanted[k] && p.name === "bar");
      const whole = film.panels.find((p, k) => wanted[k] && p.name === "frame");
      this.crop = crop(film, framed, whole, hasBar, this.inset);
      this.rows = [[], [], []];
      this.picks = [];
      for (let row = 0; row < film.rows; row++) {
        if (!wanted[c.panel[row]]) continue;
        (c.kind[row] === PICK ? this.picks : this.rows[c.layer[row]]).push(row);
      }
      this.busy = buckets(c, this.rows[MOTION], film.duration);
      // The moments at which the state layer changes.
      const moments = new Set();
      for (const row of this.rows[STATE]) moments.add(c.t0[row]).add(c.t1[row]);
      this.moments = Float64Array.from(moments).sort();
      this.stateEpoch = -1;
      this.element.style.aspectRatio = `${this.crop.w} / ${this.crop.h}`;
      this.element.style.setProperty("--pane-aspect", String(this.crop.w / this.crop.h));
      this.resize();
    }

    /* Fit the canvases to the element; returns whether anything changed. */
    resize() {
      const ratio = window.devicePixelRatio || 1;
      const width = this.element.clientWidth;
      if (!width || !this.film) return false;
      this.scale = width / this.crop.w;
      const pixels = [Math.round(width * ratio), Math.round(this.crop.h * this.scale * ratio)];
      if (this.canvases[0].width === pixels[0] && this.canvases[0].height === pixels[1]) {
        return false;
      }
      for (const canvas of this.canvases) [canvas.width, canvas.height] = pixels;
      this.stale = true;
      return true;
    }

    paint(t, palette, selected) {
      if (!this.film || !this.scale) return;
      if (this.palette !== palette) {
        this.palette = palette;
        this.stale = true;
      }
      if (this.stale) this.layer(STATIC, t);
      const epoch = this.epoch(t);
      if (this.stale || epoch !== this.stateEpoch) {
        this.layer(STATE, t);
        this.stateEpoch = epoch;
      }
      this.stale = false;
      this.layer(MOTION, t);
      if (selected) this.frame(t, selected);
    }

    /* Return the number of changes of the state layer up to t. */
    epoch(t) {
      let [low, high] = [0, this.moments.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.moments[middle] <= t) low = middle + 1;
        else high = middle;
      }
      return low;
    }

    layer(layer, t) {
      const context = this.contexts[layer];
      const ratio = this.canvases[layer].width / this.crop.w;
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.clearRect(0, 0, this.canvases[layer].width, this.canvases[layer].height);
      context.setTransform(ratio, 0, 0, ratio, -this.crop.x * ratio, -this.crop.y * ratio);
      context.lineJoin = "miter";
      this.worn = -1;
      const c = this.film.columns;
      const rows = layer === MOTION ? this.busy(t) : this.rows[layer];
      for (const row of rows) {
        if (c.t0[row] <= t && t < c.t1[row]) this.prim(context, row, t);
      }
      context.globalAlpha = 1;
    }

    /* Set the context to a style; what is set is remembered, since setting is what costs. */
    dress(context, index) {
      const { film, palette } = this;
      const style = film.styles[index];
      const fill = style.fill === null ? null : palette[style.fill];
      const stroke = style.stroke === null || !style.width ? null : palette[style.stroke];
      if (fill) context.fillStyle = fill;
      if (stroke) {
        context.strokeStyle = stroke;
        context.lineWidth = style.width;
        context.lineCap = style.cap;
        context.setLineDash(style.dash);
      }
      if (style.size) {
        context.font = `${style.weight} ${style.size}px "${film.fonts[style.font]}"`;
        context.textAlign = ANCHORS[style.anchor];
      }
      this.worn = index;
      this.paintsFill = Boolean(fill);
      this.paintsStroke = Boolean(stroke);
      this.closes = style.fill !== null;
      this.radius = style.radius;
    }

    prim(context, row, t) {
      const c = this.film.columns;
      const p = progress(c, row, t);
      if (c.style[row] !== this.worn) this.dress(context, c.style[row]);
      const [x, y, w, h] = geometry(c, row, p, this.out);
      context.globalAlpha = between(c.opacity, 2 * row, 1, p);
      const kind = c.kind[row];
      if (kind === TEXT || kind === CLOCK) {
        if (this.paintsFill) context.fillText(textOf(this.film, row, t), x, y);
        return;
      }
      if (kind === RECT && (w <= 0 || h <= 0)) return;
      if (kind === RECT && this.radius <= 0 && !this.paintsStroke) {
        if (this.paintsFill) context.fillRect(x, y, w, h);
        return;
      }
      context.beginPath();
      if (kind === RECT) {
        const radius = Math.min(this.radius, w / 2, h / 2);
        if (radius > 0) context.roundRect(x, y, w, h, radius);
        else context.rect(x, y, w, h);
      } else if (kind === LINE) {
        context.moveTo(x, y);
        context.lineTo(w, h);
      } else {
        const first = c.point[row];
        for (let k = first; k < first + c.n_points[row]; k++) {
          context.lineTo(c.points[2 * k] + x, c.points[2 * k + 1] + y);
        }
        if (this.closes) context.closePath();
      }
      if (this.paintsFill && kind !== LINE) context.fill();
      if (this.paintsStroke) context.stroke();
    }

    /* Frame every place where the selected thing lies. */
    frame(t, selected) {
      const c = this.film.columns;
      const context = this.contexts[MOTION];
      context.globalAlpha = 1;
      context.setLineDash([]);
      for (const row of this.picks) {
        if (c.ref[row] !== selected || !shown(c, row, t)) continue;
        const [x, y, w, h] = geometry(c, row, progress(c, row, t), this.out);
        context.beginPath();
        context.roundRect(x - 5, y - 5, w + 10, h + 10, 10);
        context.strokeStyle = this.palette.panel;
        context.lineWidth = 5;
        context.stroke();
        context.strokeStyle = this.palette.ink;
        context.lineWidth = 2;
        context.stroke();
      }
    }

    /* Return the ref that lies under a mouse event, or 0. */
    hit(event, t) {
      const box = this.element.getBoundingClientRect();
      const px = (event.clientX - box.left) / this.scale + this.crop.x;
      const py = (event.clientY - box.top) / this.scale + this.crop.y;
      const c = this.film.columns;
      for (let k = this.picks.length - 1; k >= 0; k--) {
        const row = this.picks[k];
        if (!shown(c, row, t)) continue;
        const [x, y, w, h] = geometry(c, row, progress(c, row, t), this.out);
        if (x <= px && px <= x + w && y <= py && py <= y + h) return c.ref[row];
      }
      return 0;
    }
  }

  const ANCHORS = { start: "left", middle: "center", end: "right" };

  /* Return a function from a moment to the rows that may show then, in the order of the film: of
     ten thousands, a frame looks at those of its 1/256 of the film alone. */
  function buckets(c, rows, duration) {
    const n = 256;
    const of = (t) => clamp(Math.floor((t / duration) * n), 0, n - 1);
    const lists = Array.from({ length: n }, () => []);
    for (const row of rows) {
      const last = of(c.t1[row]);
      for (let k = of(c.t0[row]); k <= last; k++) lists[k].push(row);
    }
    return (t) => lists[of(t)];
  }

  /* Return the part of the frame that a pane shows: its panels, or the frame above the bar. */
  function crop(film, framed, whole, hasBar, inset) {
    const [width, height] = film.size;
    if (whole) {
      const bar = film.panels.find((panel) => panel.name === "bar");
      if (!bar || hasBar) return { x: 0, y: 0, w: width, h: height };
      return { x: 0, y: 0, w: width, h: bar.y };
    }
    const x = Math.min(...framed.map((p) => p.x)) + inset;
    const y = Math.min(...framed.map((p) => p.y)) + inset;
    const right = Math.max(...framed.map((p) => p.x + p.w)) - inset;
    const bottom = Math.max(...framed.map((p) => p.y + p.h)) - inset;
    return { x, y, w: right - x, h: bottom - y };
  }

  // ---- Controls ----

  const svg = (path, size = 20) =>
    `<svg viewBox="0 0 20 20" width="${size}" height="${size}" fill="none" stroke="currentColor" ` +
    `stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">` +
    `${path}</svg>`;
  const ICONS = {
    back: svg('<path d="M15 4.5v11L7 10z" fill="currentColor"/><path d="M4.5 4.5v11"/>'),
    forward: svg('<path d="M5 4.5v11l8-5.5z" fill="currentColor"/><path d="M15.5 4.5v11"/>'),
    play: svg('<path d="M6.5 4.2v11.6L16 10z" fill="currentColor"/>', 24),
    pause: svg('<path d="M6.8 4.5v11M13.2 4.5v11" stroke-width="3.4" stroke-linecap="butt"/>', 24),
    loop: svg('<path d="M4.5 9V8a2.5 2.5 0 0 1 2.5-2.5h8.5M13 3l2.5 2.5L13 8' +
      'M15.5 11v1a2.5 2.5 0 0 1-2.5 2.5H4.5M7 17l-2.5-2.5L7 12"/>', 18),
    full: svg('<path d="M4 7.5V4h3.5M12.5 4H16v3.5M16 12.5V16h-3.5M7.5 16H4v-3.5"/>', 18),
    help: svg('<circle cx="10" cy="10" r="6.8"/><path d="M8.2 8.2a1.9 1.9 0 1 1 2.7 1.7c-.6.3-.9.7' +
      '-.9 1.3"/><circle cx="10" cy="13.6" r=".5" fill="currentColor"/>', 18),
  };

  const KEYS = [
    ["Space", "play, pause"], ["← →", "step back, step on"], ["Shift ← →", "a tenth of a step"],
    ["Home End", "start, end"], ["[ ]", "previous call, next call"], ["− +", "slower, faster"],
    ["?", "these keys"], ["Esc", "let go of what is selected"],
  ];

  function make(tag, className, attributes = {}, html = "") {
    const element = document.createElement(tag);
    if (className) element.className = className;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.innerHTML = html;
    return element;
  }

  const button = (className, label, icon) =>
    make("button", `cs-button ${className}`, { type: "button", "aria-label": label, title: label },
      ICONS[icon]);

  /* The bar under the picture: step back, play, step on, scrubber, time, speed and more. */
  class Bar {
    constructor(player) {
      this.player = player;
      this.root = make("div", "cs-bar");
      this.back = button("cs-round", "Step back", "back");
      this.play = button("cs-play", "Play", "play");
      this.forward = button("cs-round", "Step on", "forward");
      this.step = make("div", "cs-step", {}, "<b></b><span></span>");
      this.track = make("div", "cs-track", {
        role: "slider", tabindex: "0", "aria-label": "Moment", "aria-valuemin": "0",
      });
      this.time = make("div", "cs-time");
      this.speed = make("label", "cs-speed", { title: "Speed" }, '<select aria-label="Speed"></select>');
      this.loop = button("cs-plain cs-loop", "Repeat", "loop");
      this.full = button("cs-plain cs-full", "Full screen", "full");
      this.help = button("cs-plain cs-help", "Keys", "help");
      const first = make("div", "cs-group");
      first.append(this.back, this.play, this.forward);
      const last = make("div", "cs-group cs-last");
      last.append(this.time, this.speed, this.loop, this.full, this.help);
      this.root.append(first, this.step, this.track, last);
      this.listen();
    }

    listen() {
      const { player } = this;
      this.back.onclick = () => player.step(-1);
      this.forward.onclick = () => player.step(1);
      this.play.onclick = () => player.toggle();
      this.loop.onclick = () => player.setLoop(!player.loop);
      this.full.onclick = () => player.toggleFullScreen();
      this.help.onclick = () => player.showKeys();
      this.select = this.speed.querySelector("select");
      this.select.onchange = () => player.setSpeed(Number(this.select.value));
      const scrub = (event) => {
        const box = this.track.getBoundingClientRect();
        player.scrub(this.moment((event.clientX - box.left) / box.width));
      };
      this.track.onpointerdown = (event) => {
        if (event.button) return;
        this.track.setPointerCapture(event.pointerId);
        this.wasPlaying = player.playing;
        player.pause();
        scrub(event);
        this.track.onpointermove = scrub;
      };
      this.track.onpointerup = this.track.onpointercancel = () => {
        this.track.onpointermove = null;
        player.settle();
        if (this.wasPlaying) player.play();
        this.wasPlaying = false;
      };
    }

    /* Where a film time lies on the track, 0 to 1: the steps fill it, the holds at both ends do
       not show. */
    share(t) { return clamp((t - this.from) / (this.to - this.from), 0, 1); }

    moment(share) {
      if (share <= 0) return 0;
      return share >= 1 ? this.player.film.duration : this.from + share * (this.to - this.from);
    }

    load(film) {
      this.from = film.steps.length ? film.steps[0].start_s : 0;
      this.to = film.steps.length ? film.steps.at(-1).end_s : film.duration;
      const steps = segments(film);
      this.fills = [];
      this.track.innerHTML = "";
      steps.forEach((step, k) => {
        const next = steps[k + 1];
        const gap = !next ? 0 : next.phase !== step.phase ? 12 : 3;
        const segment = make("div", "cs-segment");
        const [left, right] = [this.share(step.start_s), this.share(step.end_s)];
        segment.style.left = `${100 * left}%`;
        segment.style.width = `calc(${100 * (right - left)}% - ${gap}px)`;
        const fill = make("div", "cs-fill");
        segment.append(fill);
        this.track.append(segment);
        this.fills.push({ ...step, fill });
      });
      this.labels = phaseLabels(film).map(({ name, start_s, end_s, end }) => {
        const label = make("span", end ? "cs-phase cs-phase-end" : "cs-phase");
        label.textContent = name;
        if (end) label.style.right = "0";
        else label.style.left = `${100 * this.share(start_s)}%`;
        this.track.append(label);
        return { label, start_s, end_s };
      });
      if (steps.length < film.steps.length) this.ticks(film);
      this.knob = make("div", "cs-knob");
      this.track.append(this.knob);
      this.track.setAttribute("aria-valuemax", String(Math.round(1000 * film.duration) / 1000));
      this.options(film);
    }

    ticks(film) {
      const every = Math.ceil(film.steps.length / 64);
      film.steps.filter((_, k) => k % every === 0).forEach((step) => {
        const tick = make("i", "cs-tick");
        tick.style.left = `${100 * this.share(step.start_s)}%`;
        this.track.append(tick);
      });
    }

    options(film) {
      const { clock } = film;
      const rate = (clock.ns.at(-1) - clock.ns[0]) / (clock.s.at(-1) - clock.s[0] || 1);
      this.select.innerHTML = "";
      for (const speed of SPEEDS) {
        const option = make("option", "", { value: String(speed) });
        const words = film.view === "full" && rate > 0 ? pace(rate * speed) : null;
        option.textContent = words ?? `${speed}×`;
        this.select.append(option);
      }
      this.select.value = String(this.player.speed);
    }

    update(t) {
      const { film, playing, loop } = this.player;
      const { clock } = film;
      for (const { fill, start_s, end_s } of this.fills) {
        const part = clamp((t - start_s) / (end_s - start_s), 0, 1);
        fill.style.width = `${100 * part}%`;
      }
      this.knob.style.left = `${100 * this.share(t)}%`;
      for (const { label, start_s, end_s } of this.labels) {
        const now = clamp(t, this.from, this.to - 1e-9);
        label.classList.toggle("cs-on", start_s <= now && now < end_s);
      }
      const now = clockText(clock, traceNs(clock, t));
      const end = `${clockText(clock, clock.ns.at(-1))} ${clock.unit}`;
      const k = stepAt(film, t);
      const name = k === null ? "" : film.steps[k].name;
      set(this.time, `${now} / ${end}`);
      set(this.step.firstChild, name);
      set(this.step.lastChild, `${now} of ${end}`);
      this.track.setAttribute("aria-valuenow", String(Math.round(1000 * t) / 1000));
      this.track.setAttribute("aria-valuetext", `${name || "Call"}, ${now} of ${end}`);
      if (this.playing !== playing) {
        this.playing = playing;
        this.play.innerHTML = playing ? ICONS.pause : ICONS.play;
        this.play.setAttribute("aria-label", playing ? "Pause" : "Play");
        this.play.title = playing ? "Pause" : "Play";
      }
      this.back.toggleAttribute("data-off", t <= 0);
      this.forward.toggleAttribute("data-off", t >= film.duration);
      this.loop.setAttribute("aria-pressed", String(loop));
    }
  }

  function set(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }

  /* Return the pieces of the scrubber: steps, or phases where there are many steps. */
  function segments(film) {
    if (!film.steps.length) return [{ start_s: 0, end_s: film.duration, phase: null }];
    if (film.steps.length <= MAX_SEGMENTS) return film.steps;
    const pieces = [];
    for (const { start_s, end_s, phase } of film.steps) {
      const last = pieces.at(-1);
      if (last && last.phase === phase) last.end_s = end_s;
      else pieces.push({ start_s, end_s, phase });
    }
    return pieces;
  }

  /* Return the words along the scrubber: the phases, or both ends of a call. */
  function phaseLabels(film) {
    const labels = [];
    for (const { start_s, end_s, phase } of film.steps) {
      if (phase === null || phase === undefined) continue;
      const last = labels.at(-1);
      if (last && last.phase === phase) last.end_s = end_s;
      else labels.push({ name: film.phases[phase], phase, start_s, end_s });
    }
    if (labels.length || !film.meta.textbook) return labels;
    const half = film.duration / 2;
    return [
      { name: "call starts", start_s: 0, end_s: half, end: false },
      { name: "call returns", start_s: half, end_s: film.duration, end: true },
    ];
  }

  /* Return how trace time and screen time relate, such as "1 ms = 5 s". */
  function pace(nsPerSecond) {
    for (const [unit, size] of [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]]) {
      for (const times of [1, 10, 100]) {
        const seconds = (times * size) / nsPerSecond;
        if (seconds < 0.5) continue;
        return `${times} ${unit} = ${Number(seconds.toFixed(seconds < 9.95 ? 1 : 0))} s`;
      }
    }
    return null;
  }

  // ---- The player ----

  class Player {
    constructor(root, options) {
      this.root = root;
      this.options = options;
      this.t = 0;
      this.speed = 1;
      this.playing = false;
      this.loop = false;
      this.selected = 0;
      this.calm = window.matchMedia("(prefers-reduced-motion: reduce)");
      this.picture = make("div", "cs-picture");
      this.live = make("div", "cs-live", { "aria-live": "polite" });
      this.keys = keysDialog();
      this.bar = new Bar(this);
      root.classList.add("cs-player");
      root.classList.toggle("cs-standalone", !options.panes && !options.compact);
      root.classList.toggle("cs-compact", Boolean(options.compact));
      if (!options.panes) root.append(this.picture);
      root.append(this.bar.root, this.live, this.keys);
      this.setPanes(options.panes ?? [{ element: this.picture, panels: options.panels ?? null }]);
      this.listen();
    }

    /* Paint these panels on these elements: [{element, panels: [names] or null for all, inset: px
       of the panels' edge to leave out}]. */
    setPanes(panes) {
      for (const pane of this.panes ?? []) {
        pane.element.replaceChildren();
        pane.element.onclick = pane.element.onmousemove = null;
        this.observer.unobserve(pane.element);
      }
      this.observer ??= new ResizeObserver(() => this.resized());
      this.panes = panes.map((asked) => {
        const { element } = asked;
        const pane = new Pane(asked);
        element.onclick = (event) => this.clicked(pane.hit(event, this.shownTime()));
        element.onmousemove = (event) => {
          element.style.cursor = pane.hit(event, this.shownTime()) ? "pointer" : "";
        };
        this.observer.observe(element);
        return pane;
      });
    }

    listen() {
      const { signal } = (this.aborter = new AbortController());
      if (!this.options.compact) {
        document.addEventListener("keydown", (event) => this.key(event), { signal });
      }
      document.addEventListener("visibilitychange", () => {
        if (document.hidden) this.pause();
      }, { signal });
      window.addEventListener("resize", () => this.resized(), { signal });
      this.calm.addEventListener("change", () => this.paint(), { signal });
      if (!this.options.theme) {
        const dark = window.matchMedia("(prefers-color-scheme: dark)");
        dark.addEventListener("change", () => this.paint(), { signal });
      }
    }

    /* Show a film; `start` may name a moment {ns, t} and a selection {key}. */
    async load(bytes, start = {}) {
      const film = await decode(bytes);
      await fontsOf(film);
      if (this.gone) return;
      this.film = film;
      this.told = null;
      const [{ element: first }] = this.panes;
      first.setAttribute("role", "img");
      first.setAttribute("aria-label", film.meta.title ?? "Collective");
      const ground = ["bar", "frame"]; // drawn for exports without controls of their own
      const panels = film.panels.map(({ name }) => name).filter((name) => !ground.includes(name));
      for (const pane of this.panes) {
        pane.panels ??= panels;
        pane.load(film);
      }
      this.root.dataset.view = film.view;
      this.root.style.setProperty("--cs-aspect", this.panes[0].crop.w / this.panes[0].crop.h);
      this.dressed = null;
      this.bar.load(film);
      this.t = start.t ?? (start.ns === undefined ? 0 : filmSeconds(film.clock, start.ns));
      this.t = clamp(this.t, 0, film.duration);
      this.selected = start.key ? film.refs.findIndex((ref) => refKey(ref) === start.key) : 0;
      if (this.selected < 0) this.selected = 0;
      this.paint();
      this.root.dataset.ready = "true";
    }

    get ns() { return traceNs(this.film.clock, this.t); }
    get theme() {
      if (this.options.theme) return this.options.theme;
      return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    }

    /* The moment that is painted: with reduced motion nothing glides, a step is one picture. */
    shownTime() {
      const k = this.playing && this.calm.matches ? stepAt(this.film, this.t) : null;
      if (k === null) return this.t;
      const { start_s, end_s } = this.film.steps[k];
      return start_s + 0.6 * (end_s - start_s);
    }

    paint() {
      if (!this.film) return;
      const began = performance.now();
      const t = this.shownTime();
      const palette = this.film.palettes[this.theme];
      if (this.dressed !== palette) this.dress(palette);
      for (const pane of this.panes) pane.paint(t, palette, this.selected);
      this.bar.update(this.t);
      this.tell();
      this.cost = performance.now() - began;
    }

    /* Give the bar the picture's colours. */
    dress(palette) {
      this.dressed = palette;
      this.root.style.colorScheme = this.theme;
      for (const [token, colour] of Object.entries(palette)) {
        if (!/\d$/.test(token)) this.root.style.setProperty(`--cs-${token}`, colour ?? "transparent");
      }
    }

    /* Say aloud what the step shows, once a step. */
    tell() {
      const k = stepAt(this.film, this.t);
      if (k === null || k === this.told) return;
      this.told = k;
      const { name, sentence } = this.film.steps[k];
      this.live.textContent = `${name}. ${sentence}`;
    }

    play() {
      if (this.playing || !this.film) return;
      if (this.t >= this.film.duration) this.t = 0;
      this.playing = true;
      this.last = null;
      this.frame = requestAnimationFrame((now) => this.advance(now));
      this.paint();
    }

    advance(now) {
      if (!this.playing) return;
      if (!this.root.isConnected) {
        this.destroy();
        return;
      }
      // The first stamp may lie before the moment at which play() was called.
      const elapsed = this.last === null ? 0 : clamp((now - this.last) / 1000, 0, 0.25);
      this.last = now;
      this.t += elapsed * this.speed;
      if (this.t >= this.film.duration) {
        if (this.loop) this.t = 0;
        else {
          this.t = this.film.duration;
          this.pause();
          return;
        }
      }
      this.paint();
      this.frame = requestAnimationFrame((stamp) => this.advance(stamp));
    }

    pause() {
      if (!this.playing) return;
      this.playing = false;
      cancelAnimationFrame(this.frame);
      this.paint();
      this.settle();
    }

    toggle() { if (this.playing) this.pause(); else this.play(); }

    /* Go to a film time and stay there. */
    seek(t) {
      this.pause();
      this.scrub(t);
      this.settle();
    }

    scrub(t) {
      this.t = clamp(t, 0, this.film.duration);
      this.paint();
    }

    seekNs(ns) { this.seek(filmSeconds(this.film.clock, ns)); }

    step(by) {
      const starts = [...this.film.steps.map((step) => step.start_s), this.film.duration];
      const near = 1e-6;
      const target = by > 0
        ? starts.find((start) => start > this.t + near)
        : starts.findLast((start) => start < this.t - near);
      this.seek(target ?? (by > 0 ? this.film.duration : 0));
    }

    nudge(by) {
      const k = stepAt(this.film, this.t);
      const step = k === null ? null : this.film.steps[k];
      this.seek(this.t + (by / 10) * (step ? step.end_s - step.start_s : this.film.duration));
    }

    setSpeed(speed) {
      this.speed = speed;
      this.bar.select.value = String(speed);
      this.paint();
    }

    faster(by) {
      const k = clamp(SPEEDS.indexOf(this.speed) + by, 0, SPEEDS.length - 1);
      this.setSpeed(SPEEDS[k]);
    }

    setLoop(loop) {
      this.loop = loop;
      this.paint();
    }

    setTheme(theme) {
      this.options.theme = theme;
      this.paint();
    }

    select(index) {
      this.selected = index > 0 ? index : 0;
      this.paint();
      this.settle();
      this.options.onSelect?.(this.film.refs[this.selected] ?? null);
    }

    /* Select a thing by the name that links use, and go to where it shows. */
    selectKey(key) {
      const index = this.film.refs.findIndex((ref) => refKey(ref) === key);
      if (index > 0) this.reveal(index);
      this.select(index);
    }

    reveal(index) {
      const c = this.film.columns;
      const rows = this.panes.flatMap((pane) => pane.picks).filter((row) => c.ref[row] === index);
      const moving = rows.filter((row) => c.layer[row] === MOTION);
      const wanted = moving.length ? moving : rows;
      if (!wanted.length || wanted.some((row) => shown(c, row, this.t))) return;
      this.seek((c.t0[wanted[0]] + c.t1[wanted[0]]) / 2);
    }

    clicked(index) {
      const ref = this.film.refs[index];
      if (ref && ref.kind === "action" || ref?.action) this.act(ref.action);
      else this.select(index);
    }

    act(action) {
      if (action === "play") this.toggle();
      else if (action === "back") this.step(-1);
      else if (action === "forward") this.step(1);
      else this.options.onAction?.(action);
    }

    showKeys() { if (!this.keys.open) this.keys.showModal(); }

    toggleFullScreen() {
      if (document.fullscreenElement) document.exitFullscreen();
      else (this.options.screen ?? this.root).requestFullscreen?.();
    }

    resized() {
      let changed = false;
      for (const pane of this.panes) changed = pane.resize() || changed;
      if (changed) this.paint();
    }

    /* Keep the moment in the address, so that a copied link opens it again. */
    settle() {
      if (!this.options.link || !this.film) return;
      const url = new URL(window.location.href);
      const { clock } = this.film;
      const ns = this.ns;
      url.searchParams.delete("t");
      url.searchParams.delete("s");
      if (this.t > 0) url.searchParams.set("t", String(Number((ns / 1000).toFixed(4))));
      // Where the trace's time stands still, the film's own time says which moment is meant.
      if (this.t > 0 && Math.abs(filmSeconds(clock, ns) - this.t) > 1e-3) {
        url.searchParams.set("s", this.t.toFixed(3));
      }
      const key = refKey(this.film.refs[this.selected]);
      if (key) url.searchParams.set("m", key);
      else url.searchParams.delete("m");
      window.history.replaceState(window.history.state, "", url);
      this.options.onSettle?.();
    }

    key(event) {
      if (!this.root.isConnected) this.destroy();
      if (this.gone || !this.film || event.ctrlKey || event.metaKey || event.altKey || isBusy(event)) return;
      const focused = event.target.closest?.("button, a, select, summary");
      const actions = {
        " ": () => (focused ? null : this.toggle()),
        ArrowRight: () => (event.shiftKey ? this.nudge(1) : this.step(1)),
        ArrowLeft: () => (event.shiftKey ? this.nudge(-1) : this.step(-1)),
        Home: () => this.seek(0),
        End: () => this.seek(this.film.duration),
        "[": () => this.options.onCall?.(-1),
        "]": () => this.options.onCall?.(1),
        "+": () => this.faster(1),
        "-": () => this.faster(-1),
        "?": () => this.showKeys(),
        Escape: () => this.select(0),
      };
      const action = actions[event.key];
      if (!action || (event.key === " " && focused)) return;
      event.preventDefault();
      action();
    }

    destroy() {
      this.gone = true;
      this.playing = false;
      this.aborter.abort();
      this.observer.disconnect();
      for (const pane of this.panes) pane.element.replaceChildren();
      this.root.replaceChildren();
      this.root.classList.remove("cs-player", "cs-standalone");
      delete this.root.dataset.ready;
    }
  }

  /* Return whether a key belongs to what is focused: a field, a list, an open dialog. */
  function isBusy(event) {
    if (document.querySelector("dialog[open], [role=dialog][data-modal-content]")) return true;
    return Boolean(event.target.closest?.(
      "input, textarea, select, [contenteditable=true], [role=combobox], [role=listbox], " +
      "[role=menu], [role=tab], [role=radiogroup]",
    ));
  }

  function keysDialog() {
    const rows = KEYS.map(([keys, what]) =>
      `<dt>${keys.split(" ").map((key) => `<kbd>${key}</kbd>`).join(" ")}</dt><dd>${what}</dd>`);
    const dialog = make("dialog", "cs-keys", { "aria-label": "Keys" },
      `<form method="dialog"><h2>Keys</h2><button class="cs-button cs-plain" aria-label="Close">` +
      `${svg('<path d="M5 5l10 10M15 5L5 15"/>', 18)}</button></form><dl>${rows.join("")}</dl>`);
    dialog.onclick = (event) => { if (event.target === dialog) dialog.close(); };
    return dialog;
  }

  /* Wait for the faces that the film's texts use, so that the first picture has them. */
  async function fontsOf(film) {
    const faces = new Set();
    for (const { size, weight, font } of film.styles) {
      if (size > 0) faces.add(`${weight} ${size}px "${film.fonts[font]}"`);
    }
    try {
      await Promise.all([...faces].map((face) => document.fonts.load(face, "R0→µ")));
    } catch {
      // A picture in another font is better than none.
    }
  }

  /* Return what the address says about the moment to open. */
  function linked() {
    const query = new URLSearchParams(window.location.search);
    const start = {};
    if (query.has("t")) start.ns = 1000 * Number(query.get("t"));
    if (query.has("s")) start.t = Number(query.get("s"));
    if (query.has("m")) start.key = query.get("m");
    if (Number.isNaN(start.ns)) delete start.ns;
    if (Number.isNaN(start.t)) delete start.t;
    return start;
  }

  /* Show a film in an element, with controls; resolves to the player once it is painted.

     options: theme ("light", "dark"; by default the system's), link (keep the moment in the
     address and open it from there), panes (see setPanes), start ({ns, t, key}), autoplay, loop,
     panels (of the one pane that it makes itself), compact (a small picture without keys),
     screen (what goes full screen), onSelect(ref), onAction(name), onCall(by), onSettle(). */
  window.chunkscopePlayer = async (root, bytes, options = {}) => {
    const player = new Player(root, options);
    await player.load(await bytes, options.link ? { ...options.start, ...linked() } : options.start);
    if (options.loop) player.setLoop(true);
    if (options.autoplay) player.play();
    return player;
  };
  Object.assign(window.chunkscopePlayer, { decode, at, stepAt, traceNs, filmSeconds, refKey });
})();
