package protocol

// Inspection is what a look at the cluster of a runtime shows. Fields that the cluster
// does not tell are left out.
type Inspection struct {
	Kind      string `json:"kind"`
	Reachable bool   `json:"reachable"`
	Detail    string `json:"detail"`
	// Reason is one of a Probe's, if the cluster was not reached.
	Reason   string           `json:"reason,omitempty"`
	Cluster  *InspectCluster  `json:"cluster,omitempty"`
	Nodes    *InspectNodes    `json:"nodes,omitempty"`
	Capacity *InspectCapacity `json:"capacity,omitempty"`
	Workload []InspectUnit    `json:"workload,omitempty"`
	Warnings []string         `json:"warnings"`
}

// InspectCluster is who a cluster says that it is.
type InspectCluster struct {
	Name      string `json:"name,omitempty"`
	Version   string `json:"version,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// InspectNodes are the machines of a cluster.
type InspectNodes struct {
	Total int           `json:"total"`
	Ready int           `json:"ready"`
	Items []InspectNode `json:"items"`
}

// InspectNode is one machine. CPU is in thousandths of a core.
type InspectNode struct {
	Name             string `json:"name"`
	Status           string `json:"status"`
	Ready            bool   `json:"ready"`
	Schedulable      bool   `json:"schedulable"`
	CPUTotal         int64  `json:"cpuTotal,omitempty"`
	MemoryMBTotal    int64  `json:"memoryMbTotal,omitempty"`
	GPUTotal         int64  `json:"gpuTotal,omitempty"`
	OS               string `json:"os,omitempty"`
	Arch             string `json:"arch,omitempty"`
	Kernel           string `json:"kernel,omitempty"`
	ContainerRuntime string `json:"containerRuntime,omitempty"`
	AgentVersion     string `json:"agentVersion,omitempty"`
	Address          string `json:"address,omitempty"`
}

// InspectCapacity is how many runs the runtime takes at a time, and how many of those
// have a unit.
type InspectCapacity struct {
	Total int `json:"total"`
	Used  int `json:"used"`
	Free  int `json:"free"`
}

// InspectUnit is something that runs on the cluster for this runtime.
type InspectUnit struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"`
	Node   string `json:"node,omitempty"`
	// Role is "eval" for the unit of a run.
	Role      string `json:"role"`
	Namespace string `json:"namespace,omitempty"`
	OwnerKind string `json:"ownerKind,omitempty"`
}
