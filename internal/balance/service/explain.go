package service

import "github.com/waymark-net/waymark/internal/stage"

var explainPage = stage.ExplainPage("balance", page.Missing)

var explainer = &stage.Explainer{
	Path:  explainPage.Path,
	Short: "Show which backend would get a packet that arrives at an interface",
	Long: `Explain has the program at XDP of the running agent try a packet, as if it arrived at the
interface, and shows what would become of it: its service, its backend, whether the
connection is known or the Maglev table names the backend, and the headers with which it
would leave; or why it would not. The program runs with the tables as they are, and
counts, remembers and sends nothing.`,
	Example: `  waymark balance explain eth0 src 198.51.100.7 src port 40000 dst 192.0.2.1 tcp dst port 443 syn
  waymark balance explain eth0 --hex src 198.51.100.7 dst 192.0.2.1 tcp dst port 443
  waymark balance explain eth0 --write out.pcapng trace.pcapng`,
}
