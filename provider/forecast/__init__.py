"""How long a plan will take, which broker decides that, and how full the disks get: by a simulation of the cluster."""
