// Package roll holds the vocabulary of rolltrace and its file formats: what a recording, a roll, a termination, a
// window, a span, a gap, a verdict and a report are. Every other package speaks it; it imports nothing of ours and
// nothing beyond the standard library.
//
// # Times
//
// Every time.Time is UTC. A time that is known only within bounds is an [Instant], and says which [Source] bounds it
// and therefore whose clock stamped it. Kubernetes writes metav1.Time truncated to the second, so such a value t means
// "in [t, t+1s)" (apimachinery pkg/apis/meta/v1/time.go). Skew between clocks never hides in an Instant.
//
// # Promises
//
// A recording written by this version is readable by every later one that knows its schema ([RecordingSchema]). A
// report ([ReportSchema]) can be rendered again without any backend. The JSON names of both are stable.
package roll
