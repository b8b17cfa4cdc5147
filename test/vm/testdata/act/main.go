// Command act behaves as its first argument says; the tests of package vm run it in a guest.
package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	switch os.Args[1] {
	case "exit": // says where it is and what it was given, and fails
		dir, err := os.Getwd()
		if err != nil {
			panic(err)
		}
		fmt.Printf("in %s with COLOR=%s\n", dir, os.Getenv("COLOR"))
		fmt.Fprintln(os.Stderr, "exits with 3")
		os.Exit(3)
	case "cat":
		f, err := os.Open(os.Args[2])
		if err != nil {
			panic(err)
		}
		if _, err := io.Copy(os.Stdout, f); err != nil {
			panic(err)
		}
	case "hang":
		fmt.Println("hangs")
		time.Sleep(time.Hour)
	case "crash": // the machine
		if err := os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0); err != nil {
			panic(err)
		}
	}
}
