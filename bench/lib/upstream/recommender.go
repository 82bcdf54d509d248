// What crates/recommender/benches/recommender.rs measures, of the engine of upstream's recommender: the same pods, VPAs and
// samples, on one thread. Prints a line of JSON for each size.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	v1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	client "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/client/clientset/versioned/typed/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/checkpoint"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/config"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
)

const (
	replicas = 10
	warmUp   = 120
	rounds   = 3
)

// An API server that takes every checkpoint and stores none.
type discard struct {
	client.VerticalPodAutoscalerCheckpointInterface
	written int
}

func (d *discard) VerticalPodAutoscalerCheckpoints(string) client.VerticalPodAutoscalerCheckpointInterface {
	return d
}

func (d *discard) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*v1.VerticalPodAutoscalerCheckpoint, error) {
	d.written++
	return &v1.VerticalPodAutoscalerCheckpoint{}, nil
}

type pod struct {
	id     model.PodID
	labels labels.Set
}

type bed struct {
	pods  []pod
	vpas  []*v1.VerticalPodAutoscaler
	state uint64
}

func at(minute int) time.Time { return time.Unix(1_767_225_600+int64(minute)*60, 0).UTC() }

func newBed(containers int, shared bool) *bed {
	b := &bed{state: 1}
	for n := range containers {
		app, hash := fmt.Sprintf("service-%d", n/replicas), fmt.Sprintf("%010x", n/replicas*7_919)
		set := labels.Set{"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "shop", "pod-template-hash": hash}
		if !shared {
			set["example.com/replica"] = strconv.Itoa(n)
		}
		name := fmt.Sprintf("%s-%s-%05x", app, hash, n)
		b.pods = append(b.pods, pod{model.PodID{Namespace: "shop", PodName: name}, set})
	}
	for n := range containers / replicas {
		name := fmt.Sprintf("service-%d", n)
		meta := metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(at(0))}
		b.vpas = append(b.vpas, &v1.VerticalPodAutoscaler{ObjectMeta: meta})
	}
	return b
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func (b *bed) load() model.ClusterState {
	cluster := model.NewClusterState(time.Hour)
	for _, vpa := range b.vpas {
		selector := labels.SelectorFromSet(labels.Set{"app.kubernetes.io/name": vpa.Name})
		check(cluster.AddOrUpdateVpa(vpa, selector))
	}
	for _, pod := range b.pods {
		cluster.AddOrUpdatePod(pod.id, pod.labels, corev1.PodRunning)
		check(cluster.AddOrUpdateContainer(model.ContainerID{PodID: pod.id, ContainerName: "app"}, nil))
	}
	return cluster
}

func (b *bed) next() int64 {
	b.state = b.state*6_364_136_223_846_793_005 + 1_442_695_040_888_963_407
	return int64(b.state >> 40)
}

func (b *bed) samples(cluster model.ClusterState, minute int) {
	for _, pod := range b.pods {
		cpu, memory := 20+b.next()%1_980, 100_000_000+b.next()*100
		of := model.ContainerID{PodID: pod.id, ContainerName: "app"}
		for resource, usage := range map[model.ResourceName]int64{model.ResourceCPU: cpu, model.ResourceMemory: memory} {
			sample := model.ContainerUsageSample{MeasureStart: at(minute), Usage: model.ResourceAmount(usage), Resource: resource}
			check(cluster.AddSample(&model.ContainerUsageSampleWithKey{ContainerUsageSample: sample, Container: of}))
		}
	}
}

// The sum of all targets, to be compared.
func recommend(cluster model.ClusterState, engine logic.PodResourceRecommender) int64 {
	sum := int64(0)
	format := logic.RecommendationFormat{RoundCPUMillicores: 1, RoundMemoryBytes: 1}
	for _, vpa := range cluster.VPAs() {
		resources := engine.GetRecommendedPodResources(vpa.AggregateStateByContainerName())
		list := logic.MapToListOfRecommendedContainerResources(resources, format)
		for _, container := range list.ContainerRecommendations {
			sum += container.Target.Cpu().MilliValue()
		}
	}
	return sum
}

func best(run func() time.Duration) float64 {
	least := run()
	for range rounds - 1 {
		least = min(least, run())
	}
	return least.Seconds()
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func measure(containers int, shared bool, engine logic.PodResourceRecommender) {
	b := newBed(containers, shared)
	before := heap()
	cluster := b.load()
	for minute := 1; minute <= warmUp; minute++ {
		b.samples(cluster, minute)
	}
	used := heap() - before
	targets := recommend(cluster, engine)
	minute := warmUp
	tick := best(func() time.Duration {
		minute++
		started := time.Now()
		b.samples(cluster, minute)
		recommend(cluster, engine)
		return time.Since(started)
	})
	stub := &discard{}
	writer := checkpoint.NewCheckpointWriter(cluster, stub)
	checkpoints := best(func() time.Duration {
		stub.written = 0
		started := time.Now()
		writer.StoreCheckpoints(context.Background(), 1)
		return time.Since(started)
	})
	if stub.written != len(b.vpas) {
		panic(fmt.Sprintf("%d checkpoints of %d VPAs", stub.written, len(b.vpas)))
	}
	aggregates := cluster.StateMapSize()
	cold := best(func() time.Duration {
		started := time.Now()
		b.load()
		return time.Since(started)
	})
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"containers": containers, "vpas": len(b.vpas), "aggregates": aggregates, "targets": targets,
		"cold": cold, "tick": tick, "checkpoints": checkpoints, "heap": used,
	}))
}

func main() {
	runtime.GOMAXPROCS(1)
	defaults := config.DefaultRecommenderConfig()
	model.InitializeAggregationsConfig(model.NewAggregationsConfig(24*time.Hour, 8, 24*time.Hour, 24*time.Hour, 1.2, 100*1024*1024))
	engine := logic.CreatePodResourceRecommender(logic.RecommendationConfig{
		SafetyMarginFraction:       defaults.SafetyMarginFraction,
		PodMinCPUMillicores:        defaults.PodMinCPUMillicores,
		PodMinMemoryMb:             defaults.PodMinMemoryMb,
		TargetCPUPercentile:        defaults.TargetCPUPercentile,
		LowerBoundCPUPercentile:    defaults.LowerBoundCPUPercentile,
		UpperBoundCPUPercentile:    defaults.UpperBoundCPUPercentile,
		ConfidenceIntervalCPU:      defaults.ConfidenceIntervalCPU,
		TargetMemoryPercentile:     defaults.TargetMemoryPercentile,
		LowerBoundMemoryPercentile: defaults.LowerBoundMemoryPercentile,
		UpperBoundMemoryPercentile: defaults.UpperBoundMemoryPercentile,
		ConfidenceIntervalMemory:   defaults.ConfidenceIntervalMemory,
	})
	for _, size := range strings.Split(os.Args[1], ",") {
		containers, err := strconv.Atoi(size)
		check(err)
		for _, shared := range []bool{true, false} {
			measure(containers, shared, engine)
		}
	}
}
