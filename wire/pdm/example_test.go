package pdm_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/waymark-net/waymark/wire/pdm"
)

// A request that takes 20 ms there and back, and a server that thinks for 50 ms.
func ExampleState() {
	const ms = uint64(time.Millisecond)
	client, server := pdm.State{PSN: 100}, pdm.State{PSN: 7}

	server.Receive(client.Send(0), 10*ms)
	answer := server.Send(60 * ms)
	client.Receive(answer, 70*ms)
	next := client.Send(90 * ms)

	serverDelay, whole := answer.DTLR(), next.DTLS()
	fmt.Println("server", serverDelay.Round(time.Millisecond))
	fmt.Println("network", (whole - serverDelay).Round(time.Millisecond))
	// Output:
	// server 50ms
	// network 20ms
}

func ExampleScale() {
	delta, scale := pdm.Scale(uint64(4 * time.Second))
	back, _ := pdm.Duration(delta, scale)
	fmt.Printf("%X, scale %d, read as %v\n", delta, scale, back)
	// Output: DE0B, scale 46, read as 3.999970525s
}

func ExampleAppendHeader() {
	header := pdm.AppendHeader(nil, 17, pdm.Option{PSNTP: 12, PSNLR: 25, DeltaTLR: 0xDE0B, ScaleDTLR: 46})
	fmt.Printf("% x\n", header)
	// Output: 11 01 0f 0a 2e 00 00 0c 00 19 de 0b 00 00 01 00
}

func ExampleInsert() {
	plain := packet(udp())
	marked, err := pdm.Insert(plain, pdm.Option{PSNTP: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(plain), "bytes, marked", len(marked))
	_, err = pdm.Insert(marked, pdm.Option{PSNTP: 2})
	fmt.Println(errors.Is(err, pdm.ErrMarked), err)
	o, err := pdm.Find(marked)
	fmt.Println(o, err)
	// Output:
	// 48 bytes, marked 64
	// true pdm: packet already carries a PDM option
	// PSNTP 1 PSNLR 0 DTLR 0s DTLS 0s <nil>
}
