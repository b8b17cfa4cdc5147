import "uplot/dist/uPlot.min.css";
import "./style.css";
import { render } from "preact";
import { startKeys } from "./keys.ts";
import { startLive } from "./live.ts";
import { startRouting } from "./route.ts";
import { startTheme } from "./theme.ts";
import { Shell } from "./shell.tsx";

startTheme();
startRouting();
startKeys();
startLive();
render(<Shell />, document.getElementById("app")!);
