// policies obeys NetworkPolicies on one node. It judges the packets that the node's netfilter hands to a queue.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	node := flag.String("node", "", "the name of the node")
	queue := flag.Int("queue", 100, "the number of the queue")
	ignored := flag.String("ignored-namespace", "", "a namespace whose policies are not obeyed")
	flag.Parse()
	if err := run(*kubeconfig, *node, *queue, *ignored); err != nil {
		klog.ErrorS(err, "policies are not obeyed")
		os.Exit(1)
	}
}

func run(kubeconfig, node string, queue int, ignored string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	factory := informers.NewSharedInformerFactory(client, 0)
	// The controller matches all policies with all pods whenever one of them changes.
	obeyed := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermNotEqualSelector("metadata.namespace", ignored).String()
	}))
	controller, err := networkpolicy.NewController(
		client,
		obeyed.Networking().V1().NetworkPolicies(),
		factory.Core().V1().Namespaces(),
		factory.Core().V1().Pods(),
		nil, nil, nil, nil,
		networkpolicy.Config{NodeName: node, QueueID: queue},
	)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	obeyed.Start(ctx.Done())
	return controller.Run(ctx)
}
