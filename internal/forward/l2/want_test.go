package l2

// wantRecorded are the ways that recorded messages are resolved to, by the name of their file.
var wantRecorded = map[string]string{
	"vlan": `
from in 0x8100/10: in.10
from in 0x8100/11: in.11
from in untagged: in
from out0 0x8100/20: out0.20
from out0 untagged: out0
from out1 0x88a8/30: out1.30
from out1 untagged: out1
to in.10: port in 0x8100/10 MTU 1600
to in.11: port in 0x8100/11 MTU 1600
to out0.20: port out0 0x8100/20 MTU 1500
to out1.30: port out1 0x88a8/30 MTU 1400
`,
	"filter": `
from in 0x8100/10: brv.10 by bridge brv VLAN 10, sender at in
from in 0x8100/11: brv.11 by bridge brv VLAN 11, sender at in
from in untagged: brv.11 by bridge brv VLAN 11, sender at in
from out0 0x8100/20: brv.20 by bridge brv VLAN 20, sender at out0
from out0 untagged: brv.20 by bridge brv VLAN 20, sender at out0
from out1 0x8100/30: brv.30 by bridge brv VLAN 30, sender at out1
station 020000000100 of brv VLAN 10: port in 0x8100/10 MTU 1600 behind in
station 020000000101 of brv VLAN 20: port out0 untagged MTU 1500 behind out0
station 020000000102 of brv VLAN 30: port out1 0x8100/30 MTU 1400 behind out1
to brv.10: bridge brv VLAN 10 untagged
to brv.11: bridge brv VLAN 11 untagged
to brv.20: bridge brv VLAN 20 untagged
to brv.30: bridge brv VLAN 30 untagged
`,
	"stacked": `
from in 0x8100/10: br-in by bridge br-in VLAN 0, sender at in.10
from in untagged: in
from out0 0x8100/20: br0.20 by bridge br0 VLAN 0, sender at out0
from out0 untagged: br0 by bridge br0 VLAN 0, sender at out0
from out1 0x8100/30: br1 by bridge br1 VLAN 0, sender at out1.30
from out1 untagged: out1
station 020000000100 of br-in VLAN 0: port in 0x8100/10 MTU 1600 behind in.10
station 020000000101 of br0 VLAN 0: port out0 untagged MTU 1500 behind out0
station 020000000101 of br0 VLAN 1: port out0 untagged MTU 1500 behind out0
station 020000000102 of br1 VLAN 0: port out1 0x8100/30 MTU 1400 behind out1.30
station 020000000102 of br1 VLAN 1: port out1 0x8100/30 MTU 1400 behind out1.30
to br-in: bridge br-in VLAN 0 untagged
to br0.20: bridge br0 VLAN 0 0x8100/20
to br0: bridge br0 VLAN 0 untagged
to br1: bridge br1 VLAN 0 untagged
to in.10: port in 0x8100/10 MTU 1600
to out1.30: port out1 0x8100/30 MTU 1400
`,
	"vrf": `
from in untagged: in in red
from out0 untagged: out0 in red
from out1 untagged: out1
`,
}
