// Command probe is the embedded cluster's own image: the pause process of every pod sandbox, and a client that
// proves from inside a pod that a Service answers by its DNS name.
//
//	probe                          wait for a signal, reaping orphans (the pause process)
//	probe reach HOST:PORT SECONDS  exit 0 once a TCP connection by name succeeds, 1 at the deadline
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	switch {
	case len(os.Args) == 1:
		pause()
	case len(os.Args) == 4 && os.Args[1] == "reach":
		os.Exit(reach(os.Args[2], os.Args[3]))
	default:
		fmt.Fprintln(os.Stderr, "usage: probe | probe reach HOST:PORT SECONDS")
		os.Exit(2)
	}
}

func pause() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}

func reach(address, seconds string) int {
	limit, err := strconv.Atoi(seconds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "SECONDS is not a number:", seconds)
		return 2
	}
	deadline := time.Now().Add(time.Duration(limit) * time.Second)
	for {
		connection, err := net.DialTimeout("tcp", address, 2*time.Second)
		if err == nil {
			fmt.Println("reached", address, "at", connection.RemoteAddr())
			connection.Close()
			return 0
		}
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		time.Sleep(200 * time.Millisecond)
	}
}
