import type { ComponentType } from "preact";
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { needReference } from "./data.ts";
import { bindAlways, bindings } from "./keys.ts";
import { connected, follow, following, interval } from "./live.ts";
import { said } from "./parts/copy.tsx";
import { go, href, kept, view } from "./route.ts";
import { theme, toggleTheme } from "./theme.ts";
import { Now } from "./pages/now.tsx";
import { Explore } from "./pages/explore.tsx";
import { Flow } from "./pages/flow.tsx";
import { Gate } from "./pages/gate.tsx";
import { Hosts } from "./pages/hosts.tsx";
import { Reference } from "./pages/reference.tsx";
import { MapPage } from "./pages/map.tsx";
import { Notice } from "./parts/notice.tsx";

interface Page { path: string; name: string; key: string; page: ComponentType; below?: boolean; hidden?: boolean; needs?: string } // needs: a path of the API

const pages: Page[] = [
	{ path: "/", name: "Now", key: "n", page: Now },
	{ path: "/explore", name: "Explore", key: "e", page: Explore },
	{ path: "/flow", name: "Flow", key: "", page: Flow, below: true, hidden: true },
	{ path: "/map", name: "Map", key: "m", page: MapPage, needs: "/api/v1/topology" },
	{ path: "/hosts", name: "Hosts", key: "h", page: Hosts, below: true },
	{ path: "/gate", name: "Gate", key: "d", page: Gate },
	{ path: "/docs", name: "Reference", key: "r", page: Reference, below: true },
];

const help = signal(false);

// offered are the pages of this agent.
function offered(): Page[] {
	const paths = needReference()?.paths;
	return pages.filter((p) => !p.hidden && (!p.needs || paths?.some((x) => x.name === p.needs)));
}

const pageOf = (path: string) => pages.find((p) => path === p.path || (p.below && path.startsWith(`${p.path}/`)));

bindAlways([
	...pages.filter((p) => !p.hidden).map((p) => ({ keys: `g ${p.key}`, doc: `page ${p.name}`, run: () => go(href(p.path, kept())) })),
	{ keys: "/", doc: "filter", run: () => document.getElementById("filter")?.focus() },
	{ keys: "l", doc: "live or paused", run: () => follow(!following.value) },
	{ keys: "t", doc: "dark or light", run: toggleTheme },
	{ keys: "?", doc: "this list", run: () => { help.value = !help.value; } },
	{ keys: "Escape", doc: "close, or back", run: () => { if (help.value) help.value = false; else history.back(); } },
]);

export function Shell() {
	const path = view.value.path, page = pageOf(path);
	const Body = page?.page;
	useEffect(() => {
		document.title = `${page?.name ?? "No such page"} · Waymark`;
	}, [page]);
	return (
		<>
			<a class="skip" href="#main">Skip to the content</a>
			<header class="top">
				<a class="brand" href="/" aria-label="Waymark, first page"><Logo /><b>Waymark</b></a>
				<nav aria-label="Pages">
					{offered().map((p) => (
						<a key={p.path} href={href(p.path, p.path === "/" ? {} : kept())} aria-current={page === p ? "page" : undefined} title={`${p.name} (g ${p.key})`}>{p.name}</a>
					))}
				</nav>
				<div class="tools">
					<Host />
					<button type="button" onClick={toggleTheme} title="Dark or light (t)" aria-label={theme.value === "dark" ? "Light theme" : "Dark theme"}><ThemeIcon /></button>
					<button type="button" onClick={() => { help.value = true; }} title="Keys (?)" aria-label="Keys">?</button>
				</div>
			</header>
			<main id="main" tabIndex={-1}>
				{Body ? <Body /> : <Notice kind="error" title={`There is no page ${path}`}>The pages are {offered().map((p) => p.path).join(", ")}.</Notice>}
			</main>
			<div class="toast" role="status" aria-live="polite" data-on={said.value !== ""}>{said.value}</div>
			<Help />
		</>
	);
}

// Host says whose answers these are, and whether they go on.
function Host() {
	const live = following.value && connected.value !== false;
	const name = interval.value?.host ?? "";
	return (
		<button type="button" class="host" data-live={live} aria-pressed={following.value} title="Live or paused (l)" onClick={() => follow(!following.value)}>
			<span class="dot" aria-hidden="true" />
			<span>{name && <b>{name}</b>} {!following.value ? "paused" : connected.value === false ? "no answer, trying again" : "live"}</span>
		</button>
	);
}

function Help() {
	const at = useRef<HTMLDialogElement>(null);
	useEffect(() => {
		if (help.value) at.current?.showModal();
		else at.current?.close();
	}, [help.value]);
	return (
		<dialog ref={at} aria-label="Keys" onClose={() => { help.value = false; }} onClick={(e) => { if (e.target === at.current) help.value = false; }}>
			<h2>Keys</h2>
			<dl class="keys">{bindings.value.map((b) => <div key={b.keys}><dt>{b.keys.split(" ").map((k) => <kbd key={k}>{k}</kbd>)}</dt><dd>{b.doc}</dd></div>)}
				<div><dt><kbd>j</kbd><kbd>k</kbd></dt><dd>next, previous row of a table</dd></div>
				<div><dt><kbd>Enter</kbd></dt><dd>open the row</dd></div>
			</dl>
			<button type="button" class="primary" onClick={() => { help.value = false; }}>Close</button>
		</dialog>
	);
}

function Logo() {
	return (
		<svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">
			<path d="M5 2h2v20H5z" class="post" /><path d="M7 3h11l3 3.5L18 10H7z" class="sign" /><path d="M7 12h7l2.4 2.7L14 17.4H7z" class="sign two" />
		</svg>
	);
}

function ThemeIcon() {
	return <svg viewBox="0 0 20 20" width="16" height="16" aria-hidden="true"><path d="M10 2a8 8 0 1 0 0 16z" fill="currentColor" /><circle cx="10" cy="10" r="7.2" fill="none" stroke="currentColor" stroke-width="1.6" /></svg>;
}
