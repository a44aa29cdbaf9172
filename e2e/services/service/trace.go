package main

import (
	"context"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// traces is the process's tracer provider.
type traces struct{ shutdown func(context.Context) error }

// newTraces sets the global provider up as a service in Kubernetes has it: batches over OTLP, the pod in the resource. Nil
// when no endpoint is named.
func newTraces(ctx context.Context, service string) (*traces, error) {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return nil, nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, err
	}
	tp := sdk.NewTracerProvider(
		sdk.WithBatcher(exporter, sdk.WithBatchTimeout(2*time.Second)),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", service),
			attribute.String("service.instance.id", os.Getenv("POD_UID")),
			attribute.String("k8s.namespace.name", os.Getenv("NAMESPACE")),
			attribute.String("k8s.pod.name", os.Getenv("POD")),
			attribute.String("k8s.pod.uid", os.Getenv("POD_UID")),
			attribute.String("k8s.container.name", os.Getenv("CONTAINER")),
			attribute.String("k8s.node.name", os.Getenv("NODE")),
		)),
	)
	otel.SetTracerProvider(tp)
	return &traces{tp.Shutdown}, nil
}

// ids returns the identity of the span in ctx, empty when it has none.
func ids(ctx context.Context) (traceID, spanID string) {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return "", ""
	}
	return sc.TraceID().String(), sc.SpanID().String()
}
