// Alert rules as Prometheus understands them.
//
//	rules check FILE   reads a file of rules; prints its alerts, or what is wrong with it
//	rules evaluate     reads series and queries from its input, as JSON; prints the answers
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/teststorage"
)

type series struct {
	Labels  map[string]string
	Samples [][2]float64 // milliseconds since 1970, value
}

type query struct {
	Expression string
	At         int64 // milliseconds since 1970
}

type sample struct {
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "check" {
		check(os.Args[2])
	} else if len(os.Args) == 2 && os.Args[1] == "evaluate" {
		evaluate()
	} else {
		fail("rules check FILE | rules evaluate")
	}
}

func fail(problems ...any) {
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, problem)
	}
	os.Exit(1)
}

func check(file string) {
	groups, problems := rulefmt.ParseFile(file, false)
	if len(problems) > 0 {
		fail(fmt.Sprint(problems))
	}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			fmt.Println(rule.Alert)
		}
	}
}

func evaluate() {
	var given struct {
		Series  []series
		Queries []query
	}
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		fail(err)
	}
	store, err := teststorage.NewWithError()
	if err != nil {
		fail(err)
	}
	defer store.Close()
	ctx := context.Background()
	appender := store.Appender(ctx)
	for _, each := range given.Series {
		for _, point := range each.Samples {
			if _, err := appender.Append(
				0, labels.FromMap(each.Labels), int64(point[0]), point[1]); err != nil {
				fail(err)
			}
		}
	}
	if err := appender.Commit(); err != nil {
		fail(err)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute})
	answers := make([][]sample, 0, len(given.Queries))
	for _, each := range given.Queries {
		answers = append(answers, answer(ctx, engine, store, each))
	}
	json.NewEncoder(os.Stdout).Encode(answers)
}

func answer(
	ctx context.Context, engine *promql.Engine, store *teststorage.TestStorage, asked query,
) []sample {
	found, err := engine.NewInstantQuery(
		ctx, store, nil, asked.Expression, time.UnixMilli(asked.At))
	if err != nil {
		fail(asked.Expression, err)
	}
	defer found.Close()
	vector, err := found.Exec(ctx).Vector()
	if err != nil {
		fail(asked.Expression, err)
	}
	samples := make([]sample, 0, len(vector))
	for _, each := range vector {
		samples = append(samples, sample{each.Metric.Map(), each.F})
	}
	return samples
}
