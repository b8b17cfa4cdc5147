package datapath

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/waymark-net/waymark/internal/kernel"
)

// missingFunction is what a call of a function that the kernel lacks becomes: no helper has this number. The verifier never
// gets there, as the program asks for the function's address first.
const missingFunction = asm.BuiltinFunc(0xdedc0de)

// resolveKernel gives programs what they take from the kernel's type information: the numbers of functions that they call, and
// the place of a frame's flags (bpf/frame_xdp.h). The library does so, too, but reads all types of the kernel and of its
// modules again for each program.
func resolveKernel(object *ebpf.CollectionSpec) error {
	for name, p := range object.Programs {
		for i := range p.Instructions {
			if err := resolve(&p.Instructions[i]); err != nil {
				return fmt.Errorf("program %s: %w", name, err)
			}
		}
	}
	return nil
}

func resolve(ins *asm.Instruction) error {
	if field := btf.CORERelocationMetadata(ins); field != nil {
		return resolveField(ins, field)
	}
	address := ins.OpCode.IsDWordLoad() && ins.Src == asm.R0 && ins.Reference() != ""
	if !address && !ins.IsKfuncCall() {
		return nil
	}
	if ins.Reference() == kernel.FlowLookup && kernel.FlowTables.Has() {
		return nil // of a module: the library finds it, where the feature is on
	}
	number, err := kernel.Function(ins.Reference())
	if err != nil {
		return err
	}
	resolved := asm.Instruction{OpCode: ins.OpCode, Dst: ins.Dst, Src: ins.Src, Constant: int64(number)}
	if number == 0 && !address {
		resolved = missingFunction.Call()
	}
	*ins = named(resolved, ins)
	return nil
}

// kernelFields are the fields of bpf/frame_xdp.h, by the text that the library has of them.
var kernelFields = []struct{ access, name string }{
	{`"xdp_buff"[0:0]`, "xdp_buff.flags"},
	{`"xdp_buff"[0:1]`, "xdp_buff.rxq"},
	{`"xdp_rxq_info"[0:0]`, "xdp_rxq_info.dev"},
	{`"net_device"[0:0:0]`, "net_device.nd_net"},
	{`"net"[0:0:0]`, "netns_ipv4.rt_genid"},
	{`"net"[0:1:0]`, "netns_ipv6.fib6_sernum"},
	{`"net"[0:1:1]`, "netns_ipv6.rt6_stats"},
	{`"rt6_statistics"[0:0]`, "rt6_statistics.fib_discarded_routes"},
}

// resolveField knows the fields that programs read so. One that the kernel lacks is not read: cfg_forward_changes is not set.
func resolveField(ins *asm.Instruction, field *btf.CORERelocation) error {
	for _, f := range kernelFields {
		if ins.OpCode.Class() != asm.LdXClass || !strings.Contains(field.String(), f.access) {
			continue
		}
		offset, _ := kernel.Field(f.name)
		resolved := *ins
		resolved.Offset = int16(offset)
		*ins = named(resolved, ins)
		return nil
	}
	return fmt.Errorf("no place is known for %v", field)
}

// named gives an instruction what the library knows of another, except how to link it.
func named(ins asm.Instruction, as *asm.Instruction) asm.Instruction {
	symbol, source, function := as.Symbol(), as.Source(), btf.FuncMetadata(as)
	ins.Metadata = asm.Metadata{}
	if symbol != "" {
		ins = ins.WithSymbol(symbol)
	}
	if source != nil {
		ins = ins.WithSource(source)
	}
	if function != nil {
		ins = btf.WithFuncMetadata(ins, function)
	}
	return ins
}
