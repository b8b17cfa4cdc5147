// What a page shows, as a command.
import { address, type Params } from "./api.ts";

// quote makes of a text one word of a shell.
export function quote(text: string): string {
	return /^[\w@%+=:,./[\]-]+$/.test(text) && !/[[\]]/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

const flags = ["by", "sort", "since", "until", "step", "limit"];

// flowsCommand is the waymark flows that answers the same.
export function flowsCommand(p: Params): string {
	const words = ["waymark", "flows"];
	if (p.filter) words.push(quote(String(p.filter)));
	for (const name of flags) {
		if (p[name]) words.push(`--${name}`, quote(String(p[name])));
	}
	if (p.everywhere) words.push("--everywhere");
	return words.join(" ");
}

export function whyCommand(p: Params): string {
	const words = ["waymark", "why"];
	if (p.filter) words.push(quote(String(p.filter)));
	for (const name of ["since", "until"]) {
		if (p[name]) words.push(`--${name}`, quote(String(p[name])));
	}
	return words.join(" ");
}

export function curl(origin: string, path: string, p: Params): string {
	return `curl ${quote(origin + address(path, p))}`;
}
