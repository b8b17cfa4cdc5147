//go:build !amd64

package vm

func readTSC() uint64 { return 0 }
