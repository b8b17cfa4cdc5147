package forward

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Of nf_tables (include/uapi/linux/netfilter/nf_tables.h).
const (
	msgGetFlowTable = unix.NFNL_SUBSYS_NFTABLES<<8 | 23

	flowTableHook  = 3
	flowTableFlags = 7
	hookDevices    = 3
	deviceName     = 1

	flagHardware = 1 // packets do not come here
)

// flowDevices are names of devices of flow tables that work in software.
type flowDevices map[string]bool

// flowTables lists those of the calling thread's namespace.
func flowTables() (flowDevices, error) {
	req := nl.NewNetlinkRequest(msgGetFlowTable, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_UNSPEC, Version: nl.NFNETLINK_V0})
	messages, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the flow tables of nftables: %w", err)
	}
	found := flowDevices{}
	for _, m := range messages {
		if err := found.add(m); err != nil {
			return nil, fmt.Errorf("reading a flow table of nftables: %w", err)
		}
	}
	return found, nil
}

// add adds the devices of a flow table.
func (d flowDevices) add(m []byte) error {
	if len(m) < nl.SizeofNfgenmsg {
		return nil
	}
	attrs, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
	if err != nil {
		return err
	}
	var devices []string
	for _, a := range attrs {
		switch a.Attr.Type & nl.NLA_TYPE_MASK {
		case flowTableFlags:
			if number(a)&flagHardware != 0 {
				return nil
			}
		case flowTableHook:
			if devices, err = devicesOf(a.Value); err != nil {
				return err
			}
		}
	}
	for _, name := range devices {
		d[name] = true
	}
	return nil
}

func devicesOf(hook []byte) (names []string, err error) {
	attrs, err := nl.ParseRouteAttr(hook)
	for _, a := range attrs {
		if a.Attr.Type&nl.NLA_TYPE_MASK != hookDevices {
			continue
		}
		devices, err := nl.ParseRouteAttr(a.Value)
		if err != nil {
			return nil, err
		}
		for _, one := range devices {
			if one.Attr.Type&nl.NLA_TYPE_MASK == deviceName {
				names = append(names, unix.ByteSliceToString(one.Value))
			}
		}
	}
	return names, err
}

// setOffload has programs find flows in flow tables, where the kernel shows them.
func (f *Forwarder) setOffload(s *datapath.Spec) error {
	if !kernel.FlowTables.Has() {
		return nil
	}
	at, err := kernel.LocateFlow()
	if err != nil {
		f.log.Warn("forward: flow tables of nftables are not used", "error", err)
		return nil
	}
	f.offload = true
	if err := s.SetConstant("cfg_forward_offload", abiForwardOffloadAt{Next: int32(at.Size + at.Tuple), Previous: int32(at.Tuple) - int32(at.Size), Bits: int32(at.Bits)}); err != nil {
		return err
	}
	return s.Enable("FEATURE_OFFLOAD")
}
