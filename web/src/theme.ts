// Dark and light, and the colours of charts in each.
import { signal } from "@preact/signals";

export type Theme = "light" | "dark";

const wish = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const saved = (): Theme | null => {
	const s = localStorage.getItem("theme");
	return s === "dark" || s === "light" ? s : null;
};

export const theme = signal<Theme>("light");

function apply(t: Theme): void {
	theme.value = t;
	document.documentElement.dataset.theme = t;
}

export function startTheme(): void {
	apply(saved() ?? wish());
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (!saved()) apply(wish()); });
}

export function toggleTheme(): void {
	const t = theme.value === "dark" ? "light" : "dark";
	localStorage.setItem("theme", t);
	apply(t);
}

// Of Okabe and Ito, darker or lighter where the background needs it: each has a contrast of 3 at least.
const palettes: Record<Theme, string[]> = {
	light: ["#0072b2", "#d55e00", "#007f5c", "#b24c86", "#8a6d00", "#3a86b7", "#6a51b8", "#b5485d", "#4f7a28", "#5d4037"],
	dark: ["#56b4e9", "#ff9a3d", "#2fcf9d", "#e79cc6", "#f0d742", "#7fa8ff", "#b79cff", "#ff8d94", "#a3d36c", "#d8b59f"],
};
const rests: Record<Theme, string> = { light: "#77818d", dark: "#8b95a3" };

export function colour(i: number): string {
	const p = palettes[theme.value];
	return p[i % p.length]!;
}
export const restColour = () => rests[theme.value];

// token is a colour of the style sheet.
export function token(name: string): string {
	return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// shade is the colour of a heat map for a share of the largest value: perceived steps are equal.
export function shade(share: number): string {
	const s = Math.sqrt(Math.min(1, Math.max(0, share)));
	const ramp = theme.value === "dark"
		? [[22, 29, 38], [23, 74, 110], [40, 134, 178], [120, 200, 220], [240, 240, 190]]
		: [[246, 248, 250], [190, 222, 240], [102, 170, 215], [20, 104, 165], [8, 42, 92]];
	const x = s * (ramp.length - 1), i = Math.min(ramp.length - 2, Math.floor(x)), f = x - i;
	const c = ramp[i]!.map((v, k) => Math.round(v + (ramp[i + 1]![k]! - v) * f));
	return `rgb(${c.join(",")})`;
}

// inkOn is black or white, whichever can be read better on a colour.
export function inkOn(rgb: string): string {
	const [r, g, b] = rgb.match(/\d+/g)!.map((v) => Number(v) / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)) as [number, number, number];
	return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}
