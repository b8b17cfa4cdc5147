package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/kernel"
)

// Of nfnetlink and nf_tables (include/uapi/linux/netfilter/nf_tables.h).
const (
	msgGetChain = unix.NFNL_SUBSYS_NFTABLES<<8 | 4

	chainTable  = 1
	chainName   = 3
	chainHook   = 4
	chainPolicy = 5
	chainUse    = 6
	hookNumber  = 1

	policyDrop = 0
)

// families have hooks that forwarded packets pass, by the number in enum nf_inet_hooks: prerouting, forward, postrouting,
// and ingress. Those of netdev all are at interfaces.
var families = familyHooks{
	unix.NFPROTO_INET: {"inet", 1<<0 | 1<<2 | 1<<4 | 1<<5}, unix.NFPROTO_IPV4: {"ip", 1<<0 | 1<<2 | 1<<4},
	unix.NFPROTO_IPV6: {"ip6", 1<<0 | 1<<2 | 1<<4}, unix.NFPROTO_NETDEV: {"netdev", 1<<0 | 1<<1},
}

// bridgeFamilies have hooks that frames between a bridge and its ports pass, when they are routed: prerouting, input, output
// and postrouting.
var bridgeFamilies = familyHooks{unix.NFPROTO_BRIDGE: {"bridge", 1<<0 | 1<<1 | 1<<3 | 1<<4}}

// atDevices are hooks that the kernel's own fast path for flow tables passes, too.
var atDevices = familyHooks{unix.NFPROTO_INET: {"inet", 1 << 5}, unix.NFPROTO_NETDEV: {"netdev", 1<<0 | 1<<1}}

// familyHooks are families by their number.
type familyHooks map[uint8]struct {
	name  string
	hooks uint32
}

// passing is what packets that XDP forwards would not pass in a network namespace, and what follows from that.
type passing struct {
	closed  string // why none are forwarded, and what to do; empty: some are
	rules   string // because of which only flows of flow tables are; empty: all are
	devices flowDevices
}

// passingHere is that of the calling thread's namespace. allowed: netfilter may be bypassed. offload: programs see flow tables.
func passingHere(allowed, offload bool) (p passing, err error) {
	policies, err := xfrmPolicies()
	switch {
	case err != nil:
		return p, err
	case policies > 0:
		p.closed = "there are IPsec policies (ip xfrm policy), which forwarded packets would not meet: remove them, or take the interface out of forward.interfaces"
		return p, nil
	case allowed:
		return p, nil
	}
	names, err := chains(families)
	if err != nil {
		return p, err
	}
	legacy, err := legacyTables()
	if err != nil {
		p.closed = fmt.Sprintf("it is not known whether there are rules of iptables (%v): set forward.bypass_netfilter: true if there are none", err)
		return p, nil
	}
	for _, t := range legacy {
		names = append(names, "iptables-legacy "+t)
	}
	if len(names) == 0 {
		return p, nil
	}
	p.rules = strings.Join(names, ", ")
	if p.devices, err = flowTables(); err != nil || len(p.devices) == 0 {
		p.closed = p.bypassed()
		return p, err
	}
	if !offload {
		p.closed = fmt.Sprintf("%s; flow tables are not used: %v", p.bypassed(), kernel.FlowTables.Check())
		return p, nil
	}
	marked, err := routesByMark()
	if marked || err != nil {
		p.closed = "rules choose routes by marks (ip rule, fwmark), which packets have only behind XDP: remove these rules, or set forward.bypass_netfilter: true"
		return p, err
	}
	rules, err := chains(atDevices)
	if len(rules) > 0 {
		p.closed = fmt.Sprintf("netfilter has rules at devices, which packets of flow tables would not meet (%s): remove them, or set forward.bypass_netfilter: true", strings.Join(rules, ", "))
	}
	return p, err
}

// routesByMark reports whether rules choose routes by marks, which rules of netfilter give packets.
func routesByMark() (bool, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := netlink.RuleList(family)
		if isMissing(err) || errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("listing rules of routes: %w", err)
		}
		if slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Mark != 0 || r.Mask != nil }) {
			return true, nil
		}
	}
	return false, nil
}

// bypassed says why packets that no flow table has are not forwarded, and what to do.
func (p *passing) bypassed() string {
	return fmt.Sprintf("netfilter has rules that forwarded packets would not meet (%s): remove them, or set forward.bypass_netfilter: true", p.rules)
}

// chains are those with rules or a policy that drops, at hooks that forwarded packets pass.
func chains(of familyHooks) (names []string, err error) {
	req := nl.NewNetlinkRequest(msgGetChain, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_UNSPEC, Version: nl.NFNETLINK_V0})
	messages, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the chains of nftables: %w", err)
	}
	for _, m := range messages {
		name, err := of.chain(m)
		if err != nil {
			return nil, fmt.Errorf("reading a chain of nftables: %w", err)
		}
		if name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// bridgeBypassed says what routed frames of bridges would not pass, and what to do; empty: nothing.
func bridgeBypassed(allowed bool) (string, error) {
	chains, err := bridgeChains()
	if err != nil || allowed || len(chains) == 0 {
		return "", err
	}
	return fmt.Sprintf("netfilter has rules for bridges that forwarded packets would not meet (%s): remove them, or set forward.bypass_netfilter: true", strings.Join(chains, ", ")), nil
}

// bridgeChains are those of nftables, and the tables of ebtables whose module is loaded.
func bridgeChains() ([]string, error) {
	names, err := chains(bridgeFamilies)
	if err != nil {
		return nil, err
	}
	modules, err := os.ReadFile("/proc/modules")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(modules)) {
		module, _, _ := strings.Cut(line, " ")
		if table, ok := strings.CutPrefix(module, "ebtable_"); ok {
			names = append(names, "ebtables "+table)
		}
	}
	return names, nil
}

// isMissing reports whether the kernel has no such subsystem.
func isMissing(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}

// chain is the name of a chain that packets meet; empty: they do not, or it does nothing.
func (of familyHooks) chain(m []byte) (string, error) {
	if len(m) < nl.SizeofNfgenmsg {
		return "", nil
	}
	family, known := of[m[0]]
	attrs, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
	if err != nil || !known {
		return "", err
	}
	var table, name string
	hook, policy, use := -1, -1, 0
	for _, a := range attrs {
		switch a.Attr.Type & nl.NLA_TYPE_MASK {
		case chainTable:
			table = unix.ByteSliceToString(a.Value)
		case chainName:
			name = unix.ByteSliceToString(a.Value)
		case chainHook:
			hook, err = hookOf(a.Value)
		case chainPolicy:
			policy = number(a)
		case chainUse:
			use = number(a)
		}
	}
	if err != nil || hook < 0 || family.hooks>>hook&1 == 0 || use == 0 && policy != policyDrop {
		return "", err
	}
	return fmt.Sprintf("%s %s %s", family.name, table, name), nil
}

func hookOf(nested []byte) (int, error) {
	attrs, err := nl.ParseRouteAttr(nested)
	for _, a := range attrs {
		if a.Attr.Type&nl.NLA_TYPE_MASK == hookNumber {
			return number(a), nil
		}
	}
	return -1, err
}

func number(a syscall.NetlinkRouteAttr) int {
	if len(a.Value) < 4 {
		return -1
	}
	return int(binary.BigEndian.Uint32(a.Value))
}

// xfrmPolicies is how many IPsec policies there are.
func xfrmPolicies() (int, error) {
	req := nl.NewNetlinkRequest(nl.XFRM_MSG_GETPOLICY, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	messages, err := req.Execute(unix.NETLINK_XFRM, nl.XFRM_MSG_NEWPOLICY)
	if isMissing(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("listing IPsec policies: %w", err)
	}
	return len(messages), nil
}
