"""Programs of ours, forked from a process that has imported their modules, in place of a new interpreter for each.

On a machine whose pods are processes, most of the memory of a small program is the interpreter and its modules. A
process that is forked shares them with the others.

    server      the process that forks: no secrets, no threads, no environment of its user
    program     what makes a forked process as one that was executed
    client      asks the server
"""
