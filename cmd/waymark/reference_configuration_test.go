package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/waymark-net/waymark/internal/config"
)

// writeConfigurationMan writes waymark.yaml(5).
func writeConfigurationMan(w io.Writer) error {
	var b strings.Builder
	b.WriteString(".TH WAYMARK.YAML 5 \"\" Waymark \"Waymark manual\"\n")
	b.WriteString(".SH NAME\nwaymark.yaml \\- configuration of the Waymark agent\n")
	b.WriteString(".SH SYNOPSIS\n.B /etc/waymark/waymark.yaml\n.SH DESCRIPTION\n")
	manText(&b, `The file is YAML; every key has a default. Each key outside of a list is also a variable,
named in brackets, and can be set by "waymark run --set KEY=VALUE". Variables override
the file, and flags override both. "waymark config check FILE" names every problem with
line and column, "waymark config dump" shows the effective configuration.

Durations are written like 500ms, 10s or 1m30s; sizes in bytes or like 64KiB and 16MiB.
SIGHUP (systemctl reload waymark) applies changes of the keys marked "reload" without
losing a packet, and the log names those that need a restart.`)
	for _, s := range config.Reference() {
		name := s.Name
		if name == "" {
			name = "top level"
		}
		fmt.Fprintf(&b, ".SH %s\n%s.\n", roff.Replace(strings.ToUpper(name)), roff.Replace(upper(s.Doc)))
		for _, k := range s.Keys {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s. Values: %s. Default: %s.", roff.Replace(k.Name), roff.Replace(upper(k.Doc)),
				roff.Replace(k.Values()), roff.Replace(k.Default))
			if k.Reload {
				b.WriteString(" Reload.")
			}
			if k.Env != "" {
				fmt.Fprintf(&b, " [%s]", roff.Replace(k.Env))
			}
			b.WriteString("\n")
		}
	}
	b.WriteString(".SH EXAMPLES\n")
	manText(&b, `  interfaces: [eth0, "veth*"]
  flow: {scan_interval: 10s, active_timeout: 60s, idle_timeout: 15s}
  pdm:
    policies:
      - {to: "2001:db8::/32", proto: tcp, ports: [443], for: 1h}
  export:
    - ipfix: {collector: "udp://[2001:db8::4739]:4739", biflow: true}
    - jsonl: {path: /var/log/waymark/flows.jsonl, filter: "not port domain"}
    - prometheus: {listen: "127.0.0.1:9474"}`)
	b.WriteString(".SH SEE ALSO\n.BR waymark\\-run (1)\n.BR waymark\\-config (1)\n.BR waymark\\-filter (7)\n")
	_, err := io.WriteString(w, b.String())
	return err
}
