// Readme puts the output of a command into a file, between the lines <!-- NAME --> and <!-- /NAME -->, as a code block.
//
//	COMMAND | readme FILE NAME [LINES]
//
// With LINES only that many lines are kept, and "…" stands for the rest.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "readme:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("want FILE NAME [LINES]")
	}
	keep := -1
	if len(args) > 2 {
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		keep = n
	}
	var block []string
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if keep >= 0 && len(block) == keep {
			block = append(block, "…")
			break
		}
		block = append(block, strings.TrimRight(in.Text(), " "))
	}
	if len(block) == 0 {
		return fmt.Errorf("nothing on standard input")
	}
	b, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	begin, end := "<!-- "+args[1]+" -->\n", "<!-- /"+args[1]+" -->"
	head, rest, ok := strings.Cut(string(b), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no block %q", args[0], args[1])
	}
	out := head + begin + "```text\n" + strings.Join(block, "\n") + "\n```\n" + end + tail
	return os.WriteFile(args[0], []byte(out), 0o644)
}
