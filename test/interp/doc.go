// Package interp executes programs as the verifier left them, and counts their instructions.
//
// Input: a loaded program at tc or XDP, with the kernel's content of its maps, and frames. Output: the verdict, the frame, and
// how many instructions and calls of helpers that took. A count depends on nothing but the program, the maps and the
// frame, so that it is the same on every run and under any load, which a time is not.
//
// Every instruction counts as one, and so does a call of a helper, whatever the kernel does in it. Helpers that a
// program calls and that are not known here are an error that names them. Tests of internal/datapath and
// internal/bench call it.
package interp
