// Package tap receives the packets that tap rules of Waymark's gate select, through AF_XDP: the kernel copies each
// frame once, or, where the driver can, not at all.
//
// Input: an interface of hints.metadata of a running agent, which is to have hints.sockets: tapped. Output: frames, each
// with what was known of it at XDP. A packet that is received here does not reach the network stack. One for which there is
// no space goes on to the stack, and is counted: a receiver that is slow, stops or is killed loses and delays nothing.
//
// It takes CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF or CAP_SYS_ADMIN. Command waymark tap is built on it.
package tap
