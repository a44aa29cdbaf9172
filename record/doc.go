// Package record writes recordings: live, from the Kubernetes API's watches and the kubelets' logs, or from what
// another tool recorded. It writes facts and judges nothing; what it could not see becomes a gap, never silence.
//
// Nothing here opens a file or reads the process's clock: readers, writers and clocks are arguments.
//
// # Order
//
// Lines are in order of receipt. A gap that ended in a list comes before the objects of that list.
package record
