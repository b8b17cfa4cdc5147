package interp

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
)

// VM is a processor and its memory. Programs that run on it share maps.
type VM struct {
	// Now is CLOCK_MONOTONIC in ns, Jiffies the kernel's counter of ticks; both stand still.
	Now, Jiffies uint64
	// Random is what bpf_get_prandom_u32() returns.
	Random uint32
	// Route is what the kernel has for each address.
	Route Route

	kernel   *kernelInfo
	memory   memory            // of maps
	scratch  memory            // of one run
	maps     map[uint32]*vmMap // by id
	byBase   map[uint64]*vmMap
	programs map[*ebpf.Program][]instruction

	skb      *skb
	xdp      *xdpBuff
	counters Cost
}

// Cost is what a run took.
type Cost struct {
	Instructions, Helpers uint64
}

// New returns a processor whose maps are read from the kernel when a program first uses them.
func New() (*VM, error) {
	k, err := readKernel()
	if err != nil {
		return nil, err
	}
	return &VM{
		kernel: k, memory: memory{next: mapSpace}, maps: map[uint32]*vmMap{}, byBase: map[uint64]*vmMap{},
		programs: map[*ebpf.Program][]instruction{},
	}, nil
}

// Close frees what the processor holds of the kernel's maps.
func (vm *VM) Close() {
	for _, m := range vm.maps {
		m.kernel.Close()
	}
}

// maxSteps ends a program that would not.
const maxSteps = 1 << 20

// Run executes a tc program on a frame. The frame that it leaves is out.
func (vm *VM) Run(p *ebpf.Program, f Frame) (verdict int32, out []byte, cost Cost, err error) {
	code, err := vm.code(p)
	if err != nil {
		return 0, nil, Cost{}, err
	}
	if err := vm.useMaps(code); err != nil {
		return 0, nil, Cost{}, err
	}
	vm.scratch = memory{next: scratchSpace}
	if vm.skb, err = vm.newSKB(f); err != nil {
		return 0, nil, Cost{}, err
	}
	vm.counters = Cost{}
	r := run{VM: vm, code: code}
	r.reg[1], r.reg[10] = vm.skb.address, vm.stack()
	if err := r.loop(); err != nil {
		return 0, nil, vm.counters, fmt.Errorf("instruction %d: %w", r.pc, err)
	}
	out, err = vm.skb.bytes()
	return int32(r.reg[0]), out, vm.counters, err
}

func (vm *VM) code(p *ebpf.Program) ([]instruction, error) {
	if code := vm.programs[p]; code != nil {
		return code, nil
	}
	code, err := translated(p)
	if err != nil {
		return nil, err
	}
	vm.programs[p] = code
	return code, nil
}

const stackSize = 512

// stack returns the frame pointer of a new stack frame.
func (vm *VM) stack() uint64 {
	return vm.scratch.add("the stack", make([]byte, stackSize)) + stackSize
}

// run is one execution.
type run struct {
	*VM
	code   []instruction
	pc     int
	reg    [12]uint64 // r11 is the verifier's own
	frames []frame
}

// frame is what a call keeps of its caller.
type frame struct {
	pc    int
	saved [5]uint64 // r6 to r10
}

// Classes and parts of an opcode (linux/bpf_common.h, linux/bpf.h).
const (
	classLD, classLDX, classST, classSTX       = 0, 1, 2, 3
	classALU, classJMP, classJMP32, classALU64 = 4, 5, 6, 7

	opDoubleWord = 0x18 // BPF_LD | BPF_IMM | BPF_DW
	opExit       = 0x95
	opCall       = 0x85

	modeMem, modeMemSigned, modeAtomic = 0x60, 0x80, 0xc0

	pseudoMap, pseudoMapValue, pseudoFunction = 1, 2, 4
	pseudoCall                                = 1
)

func (r *run) loop() error {
	for {
		if r.pc < 0 || r.pc >= len(r.code) {
			return errors.New("outside of the program")
		}
		if r.counters.Instructions++; r.counters.Instructions > maxSteps {
			return fmt.Errorf("more than %d instructions", maxSteps)
		}
		i := r.code[r.pc]
		next := r.pc + 1
		var err error
		switch class := i.op & 7; {
		case i.op == opDoubleWord:
			err = r.constant(i, r.code[next].imm)
			next++
		case i.op == opExit:
			if len(r.frames) == 0 {
				return nil
			}
			next = r.leave()
		case i.op == opCall && i.src == pseudoCall:
			r.enter(next)
			next += int(i.off)
		case i.op == opCall:
			err = r.helper(i.imm)
		case class == classALU || class == classALU64:
			err = r.arithmetic(i, class == classALU64)
		case class == classLDX:
			err = r.load(i)
		case class == classST || class == classSTX:
			err = r.store(i, class == classSTX)
		case class == classJMP || class == classJMP32:
			var taken bool
			taken, err = r.jumps(i, class == classJMP)
			if taken && i.op == 0x06 { // JMP32 | JA: a long one
				next += int(i.imm)
			} else if taken {
				next += int(i.off)
			}
		default:
			err = fmt.Errorf("opcode %#x is not known", i.op)
		}
		if err != nil {
			return err
		}
		r.pc = next
	}
}

func (r *run) enter(back int) {
	f := frame{pc: back}
	copy(f.saved[:], r.reg[6:11])
	r.frames = append(r.frames, f)
	r.reg[10] = r.stack()
}

func (r *run) leave() (back int) {
	f := r.frames[len(r.frames)-1]
	r.frames = r.frames[:len(r.frames)-1]
	copy(r.reg[6:11], f.saved[:])
	return f.pc
}

// constant is a load of 64 bits, which may stand for a map.
func (r *run) constant(i instruction, high int32) error {
	value := uint64(uint32(i.imm)) | uint64(uint32(high))<<32
	switch i.src {
	case 0:
	case pseudoMap:
		value = r.maps[uint32(i.imm)].base
	case pseudoMapValue:
		value = r.maps[uint32(i.imm)].values + uint64(uint32(high))
	default:
		return fmt.Errorf("a constant of kind %d is not known", i.src)
	}
	r.reg[i.dst] = value
	return nil
}

// operand is a register or an immediate.
func (r *run) operand(i instruction) uint64 {
	if i.op&8 != 0 {
		return r.reg[i.src]
	}
	return uint64(int64(i.imm))
}

func (r *run) jumps(i instruction, wide bool) (bool, error) {
	a, b := r.reg[i.dst], r.operand(i)
	sa, sb := int64(a), int64(b)
	if !wide {
		a, b = uint64(uint32(a)), uint64(uint32(b))
		sa, sb = int64(int32(a)), int64(int32(b))
	}
	switch i.op >> 4 {
	case 0x0:
		return true, nil
	case 0x1:
		return a == b, nil
	case 0x2:
		return a > b, nil
	case 0x3:
		return a >= b, nil
	case 0x4:
		return a&b != 0, nil
	case 0x5:
		return a != b, nil
	case 0x6:
		return sa > sb, nil
	case 0x7:
		return sa >= sb, nil
	case 0xa:
		return a < b, nil
	case 0xb:
		return a <= b, nil
	case 0xc:
		return sa < sb, nil
	case 0xd:
		return sa <= sb, nil
	}
	return false, fmt.Errorf("jump %#x is not known", i.op)
}

func (r *run) arithmetic(i instruction, wide bool) error {
	a, b := r.reg[i.dst], r.operand(i)
	if i.op>>4 == 0xd {
		r.reg[i.dst] = swapped(i, a, wide)
		return nil
	}
	width := uint64(64)
	if !wide {
		a, b, width = uint64(uint32(a)), uint64(uint32(b)), 32
	}
	signed := func(v uint64) int64 {
		if wide {
			return int64(v)
		}
		return int64(int32(v))
	}
	var v uint64
	switch i.op >> 4 {
	case 0x0:
		v = a + b
	case 0x1:
		v = a - b
	case 0x2:
		v = a * b
	case 0x3, 0x9:
		if i.off != 0 {
			return errors.New("signed division is not known")
		}
		v = divided(i.op>>4 == 0x9, a, b)
	case 0x4:
		v = a | b
	case 0x5:
		v = a & b
	case 0x6:
		v = a << (b % width)
	case 0x7:
		v = a >> (b % width)
	case 0x8:
		v = -a
	case 0xa:
		v = a ^ b
	case 0xb:
		switch i.off {
		case 8:
			b = uint64(int64(int8(b)))
		case 16:
			b = uint64(int64(int16(b)))
		case 32:
			b = uint64(int64(int32(b)))
		case 0, -1: // -1: an address of a per-CPU variable becomes that of this CPU's; here there is one
		default:
			return fmt.Errorf("move of kind %d is not known", i.off)
		}
		v = b
	case 0xc:
		v = uint64(signed(a) >> (b % width))
	default:
		return fmt.Errorf("opcode %#x is not known", i.op)
	}
	if !wide {
		v = uint64(uint32(v))
	}
	r.reg[i.dst] = v
	return nil
}

// divided is as the kernel has it where the divisor is zero.
func divided(remainder bool, a, b uint64) uint64 {
	switch {
	case b == 0 && remainder:
		return a
	case b == 0:
		return 0
	case remainder:
		return a % b
	}
	return a / b
}

// swapped changes the order of bytes: always (ALU64), or of a little-endian machine's to big endian.
func swapped(i instruction, v uint64, always bool) uint64 {
	toBig := i.op&8 != 0
	swap := always || toBig == littleEndian
	switch i.imm {
	case 16:
		if swap {
			return uint64(bits.ReverseBytes16(uint16(v)))
		}
		return uint64(uint16(v))
	case 32:
		if swap {
			return uint64(bits.ReverseBytes32(uint32(v)))
		}
		return uint64(uint32(v))
	}
	if swap {
		return bits.ReverseBytes64(v)
	}
	return v
}

// sizes by the bits 3 and 4 of an opcode.
var sizes = [4]uint64{4, 2, 1, 8}

func (r *run) load(i instruction) error {
	size := sizes[i.op>>3&3]
	address := r.reg[i.src] + uint64(int64(i.off))
	v, err := r.read(address, size)
	if err != nil {
		return err
	}
	if i.op&0xe0 == modeMemSigned {
		shift := 64 - 8*size
		v = uint64(int64(v<<shift) >> shift)
	}
	r.reg[i.dst] = v
	return nil
}

// of is the memory that an address is in.
func (vm *VM) of(address uint64) *memory {
	if address >= scratchSpace {
		return &vm.scratch
	}
	return &vm.memory
}

// read is of this machine's memory, or of a variable of the kernel.
func (r *run) read(address, size uint64) (uint64, error) {
	if address < kernelSpace {
		return r.of(address).load(address, size)
	}
	// The kernel's names of variables are not there to ask for, but it puts the addresses of two only into
	// programs: the number of the CPU, which is a per-CPU variable of 32 bits, and jiffies.
	if size == 8 {
		return r.Jiffies, nil
	}
	return 0, nil
}

func (r *run) store(i instruction, register bool) error {
	size := sizes[i.op>>3&3]
	address := r.reg[i.dst] + uint64(int64(i.off))
	switch {
	case !register:
		return r.of(address).store(address, size, uint64(int64(i.imm)))
	case i.op&0xe0 == modeMem:
		return r.of(address).store(address, size, r.reg[i.src])
	case i.op&0xe0 == modeAtomic:
		return r.atomic(i, address, size)
	}
	return fmt.Errorf("opcode %#x is not known", i.op)
}

func (r *run) atomic(i instruction, address, size uint64) error {
	const fetch, exchange, compareExchange = 0x01, 0xe1, 0xf1
	old, err := r.of(address).load(address, size)
	if err != nil {
		return err
	}
	value := r.reg[i.src]
	switch i.imm {
	case 0x00, fetch:
		value += old
	case 0x40, 0x40 | fetch:
		value |= old
	case 0x50, 0x50 | fetch:
		value &= old
	case 0xa0, 0xa0 | fetch:
		value ^= old
	case exchange:
	case compareExchange:
		if r.reg[0]&(1<<(8*size-1)<<1-1) != old {
			value = old
		}
		r.reg[0] = old
	default:
		return fmt.Errorf("atomic operation %#x is not known", i.imm)
	}
	if i.imm&fetch != 0 && i.imm != compareExchange {
		r.reg[i.src] = old
	}
	return r.of(address).store(address, size, value)
}
