/* What ties the player to the dashboard's pages: Dash calls the functions of `chunkscope`, and the
   player's events become the data of dcc.Store components. */

(() => {
  "use strict";

  const PICTURE = ["header", "caption", "stage", "legend"];
  const byId = (id) => document.getElementById(id);
  const tell = (id, props) => window.dash_clientside.set_props(id, props);
  const none = () => window.dash_clientside.no_update;
  const players = { main: null, preview: null };

  function theme() {
    const chosen = document.documentElement.dataset.mantineColorScheme;
    const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
    return chosen || (dark ? "dark" : "light");
  }

  new MutationObserver(() => {
    for (const player of Object.values(players)) player?.setTheme(theme());
    document.querySelectorAll(".drawing[data-loaded]").forEach(draw);
  }).observe(document.documentElement, { attributeFilter: ["data-mantine-color-scheme"] });

  // Small pictures are loaded when they come into view, two at a time: browsers have only six
  // connections to a server, and what a person does must not wait behind pictures.
  const drawings = new Map();
  const waiting = [];
  let loading = 0;

  function draw(element) {
    const url = `/picture/${theme()}/${element.dataset.picture}`;
    if (drawings.has(url)) showDrawing(element, drawings.get(url));
    else {
      waiting.push([element, url]);
      nextDrawing();
    }
  }

  function showDrawing(element, source) {
    element.style.backgroundImage = `url("${source}")`;
    element.dataset.loaded = "true";
  }

  async function nextDrawing() {
    if (loading >= 2 || !waiting.length) return;
    const [element, url] = waiting.shift();
    loading += 1;
    try {
      if (element.isConnected && !drawings.has(url)) {
        const response = await fetch(url);
        if (response.ok) drawings.set(url, URL.createObjectURL(await response.blob()));
      }
      if (drawings.has(url)) showDrawing(element, drawings.get(url));
      else element.dataset.loaded = "none";
    } finally {
      loading -= 1;
      nextDrawing();
    }
  }

  const inView = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      inView.unobserve(target);
      draw(target);
    }
  }, { rootMargin: "200px" });

  new MutationObserver(() => {
    document.querySelectorAll(".drawing:not([data-seen])").forEach((element) => {
      element.dataset.seen = "true";
      inView.observe(element);
    });
  }).observe(document.documentElement, { childList: true, subtree: true });

  /* Fetch a film; throws what the server said where there is none. */
  async function fetchFilm(url) {
    const response = await fetch(url);
    if (!response.ok) throw new Error((await response.text()) || `HTTP ${response.status}`);
    return window.chunkscopePlayer.decode(await response.arrayBuffer());
  }

  function setAddress(changes, forget = []) {
    const url = new URL(window.location.href);
    for (const [name, value] of Object.entries(changes)) url.searchParams.set(name, value);
    for (const name of forget) url.searchParams.delete(name);
    window.history.replaceState(window.history.state, "", url);
  }

  /* Return which parts of a film go where on the page. */
  function panes(film) {
    const has = (name) => film.panels.some((panel) => panel.name === name);
    if (!has("gantt")) return [{ element: byId("pane-main"), panels: PICTURE }];
    return [
      { element: byId("pane-main"), panels: ["stage", "gantt"] },
      { element: byId("pane-state"), panels: ["state"], inset: 4 },
      { element: byId("pane-flight"), panels: ["flight"], inset: 4 },
      { element: byId("pane-legend"), panels: ["legend"], inset: 1.5 },
    ].filter(({ panels }) => panels.some(has));
  }

  function selected(ref) {
    const page = byId("player-page");
    if (page) page.dataset.inspector = ref ? "open" : "closed";
    tell("selected", { data: ref });
  }

  function problem(text) {
    const box = byId("film-error");
    if (!box) return;
    box.hidden = !text;
    box.textContent = text;
  }

  /* Show a film on the player page; called whenever call or view change. */
  async function show(where) {
    const root = byId("player-root");
    if (!root || !where) return none();
    const before = players.main?.root === root ? players.main : null;
    let film;
    try {
      film = await fetchFilm(where.url);
    } catch (error) {
      problem(error.message);
      return none();
    }
    problem("");
    const full = film.panels.some(({ name }) => name === "gantt");
    Object.assign(byId("player-page").dataset, { view: full ? "full" : "simple" });
    document.title = `${film.meta.title ?? "Trace"} · chunkscope`;
    const same = before && ["address", "call"].every((name) => before.where[name] === where[name]);
    if (before) {
      const { t, ns, film: old, selected: index } = before;
      const key = window.chunkscopePlayer.refKey(old.refs[index]);
      const start = t <= 0 ? { t: 0 } : t >= old.duration ? { t: film.duration } : { ns };
      setAddress({ call: where.call, view: where.view }, same ? [] : ["t", "s", "m"]);
      before.where = where;
      before.pause();
      before.setPanes(panes(film));
      await before.load(film, same ? { ...start, key } : {});
      if (!same) before.select(0);
    } else {
      players.main?.destroy();
      const player = await window.chunkscopePlayer(root, film, {
        link: true,
        theme: theme(),
        panes: panes(film),
        screen: byId("player-page"),
        onSelect: selected,
        onAction: (name) => { if (name === "how") tell("asked-how", { data: Date.now() }); },
        onCall: (by) => tell("wish", { data: { call: player.where.call + by } }),
      });
      player.where = where;
      players.main = player;
      if (player.selected) selected(film.refs[player.selected]);
    }
    return where.url;
  }

  /* Go to another call of the trace. */
  function goto(wish, where, film) {
    if (!wish || wish.call === where.call || wish.call < 0 || wish.call >= film.calls) return none();
    return { ...where, call: wish.call };
  }

  function view(value, where) {
    return !value || value === where.view ? none() : { ...where, view: value };
  }

  async function copyLink(clicks) {
    if (!clicks) return none();
    players.main?.pause();
    players.main?.settle();
    await navigator.clipboard.writeText(window.location.href);
    const words = byId("copy-link").querySelector("span:last-child");
    words.textContent = "Copied";
    setTimeout(() => { words.textContent = "Copy link"; }, 1500);
    return String(clicks);
  }

  function letGo(clicks) {
    if (clicks) players.main?.select(0);
    return none();
  }

  /* Show a small film that plays by itself, in the Simulate panel. */
  async function preview(where) {
    const root = byId("sim-player");
    if (!root || !where) return none();
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    try {
      if (!where.url) throw new Error(where.words);
      const film = await fetchFilm(where.url);
      root.dataset.error = "";
      if (players.preview?.root === root) {
        await players.preview.load(film);
        players.preview.play();
      } else {
        players.preview?.destroy();
        players.preview = await window.chunkscopePlayer(root, film, {
          theme: theme(), panels: where.panels, compact: true, loop: true, autoplay: !calm,
        });
      }
    } catch (error) {
      players.preview?.destroy();
      players.preview = null;
      root.dataset.error = error.message;
    }
    return where.url;
  }

  /* Ask the server for a file and save it, saying meanwhile what is going on. */
  async function exportFilm(address) {
    const note = byId("export-note");
    const { t } = players.main ?? { t: 0 };
    const form = address.split("/")[2];
    note.textContent = `Making the ${form.toUpperCase()} …`;
    const response = await fetch(`${address}?theme=${theme()}&at=${t.toFixed(3)}`);
    if (!response.ok) {
      note.textContent = (await response.text()) || `HTTP ${response.status}`;
      return;
    }
    const named = /filename="?([^";]+)/.exec(response.headers.get("Content-Disposition") ?? "");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await response.blob());
    link.download = named ? named[1] : `film.${form}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    note.textContent = `${link.download} is in your downloads.`;
  }

  document.addEventListener("click", (event) => {
    const at = (name) => event.target.closest?.(`[data-${name}]`)?.dataset[name];
    if (at("select") !== undefined) players.main?.selectKey(at("select"));
    else if (at("call") !== undefined) tell("wish", { data: { call: Number(at("call")) } });
    else if (at("export") !== undefined) exportFilm(at("export"));
  });

  document.addEventListener("keydown", (event) => {
    const find = byId("find");
    if (event.key !== "/" || !find || event.target.closest?.("input, textarea, select")) return;
    event.preventDefault();
    find.focus();
  });

  /* Say when the server is gone; the page stays as it is. */
  setInterval(async () => {
    if (document.hidden) return;
    const lost = byId("lost");
    if (!lost) return;
    const alive = await fetch("/alive").then((response) => response.ok, () => false);
    lost.hidden = alive;
    lost.textContent = alive ? "" : "Connection lost, trying again";
  }, 5000);

  window.dash_clientside = window.dash_clientside || {};
  // The list under "Topology" offers every preset, whatever is in the field.
  window.dashMantineFunctions = window.dashMantineFunctions || {};
  window.dashMantineFunctions.showAll = ({ options }) => options;
  window.dash_clientside.chunkscope = { show, goto, view, copyLink, letGo, preview };
  window.chunkscopePlayers = players;
})();
