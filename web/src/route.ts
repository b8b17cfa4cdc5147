// The view is the URL: a path, and parameters with the names of the command line.
import { computed, signal } from "@preact/signals";

export interface View { path: string; params: Record<string, string> }

function read(): View {
	return { path: decodeURI(location.pathname), params: Object.fromEntries(new URLSearchParams(location.search)) };
}

export const view = signal<View>(typeof location === "undefined" ? { path: "/", params: {} } : read());
export const params = computed(() => view.value.params);

// href writes a URL that stays readable: spaces as +, and no escapes where none are needed.
export function href(path: string, given: Record<string, string | undefined> = {}): string {
	const parts: string[] = [];
	for (const [name, value] of Object.entries(given)) {
		if (value) parts.push(`${name}=${escape(value)}`);
	}
	return parts.length ? `${path}?${parts.join("&")}` : path;
}

function escape(value: string): string {
	return encodeURIComponent(value).replace(/%20/g, "+").replace(/%(2F|3A|2C|5B|5D|40|3C|3E|28|29|2A)/gi, (e) => decodeURIComponent(e));
}

export function go(url: string, replace = false): void {
	if (replace) history.replaceState(null, "", url);
	else history.pushState(null, "", url);
	view.value = read();
}

// change sets parameters of the page that is shown; undefined removes one.
export function change(given: Record<string, string | undefined>, replace = false): void {
	go(href(view.value.path, { ...view.value.params, ...given }), replace);
}

// kept are parameters that go along from page to page: what is looked at, and when.
export function kept(): Record<string, string | undefined> {
	const { since, until, where } = params.value;
	return { where, since, until };
}

export function startRouting(): void {
	addEventListener("popstate", () => { view.value = read(); });
	addEventListener("click", (e) => {
		if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
		const link = (e.target as Element).closest?.("a");
		if (!link || link.target || link.origin !== location.origin || link.hasAttribute("download")) return;
		e.preventDefault();
		go(link.pathname + link.search);
		if (!link.hash) scrollTo(0, 0);
	});
}
