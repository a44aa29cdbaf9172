// Command rolltrace-node is the process of a node of a test cluster; see package node.
package main

import (
	"fmt"
	"os"

	"github.com/rolltrace/rolltrace/e2e/cluster/internal/node"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: rolltrace-node supervise|init DIR")
		os.Exit(2)
	}
	var err error
	switch dir := os.Args[2]; os.Args[1] {
	case "supervise":
		if err = node.Supervise(dir, os.Stdin, os.Stdout); err != nil {
			os.Exit(1) // it was said
		}
	case "init":
		if err = node.Init(dir, os.Stdin, os.Stdout); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	default:
		fmt.Fprintf(os.Stderr, "rolltrace-node: what is %q?\n", os.Args[1])
		os.Exit(2)
	}
}
