"""The controller of real nodes: observe, decide, write down, act, again and again."""
