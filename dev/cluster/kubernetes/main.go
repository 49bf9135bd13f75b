// Command kubernetes is every Kubernetes component the embedded cluster needs, in one binary.
//
// It dispatches on the name it is called by (kube-apiserver, kubelet, ...), so that the five components share one
// build and one file on disk. openclaw_cluster builds it, makes the links and starts them; nothing else calls it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// components maps a program name to its command. Functions, because building a command registers global flags.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name := filepath.Base(os.Args[0])
	build, known := components[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s: call this binary by a component's name, such as kubelet\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(build()))
}
