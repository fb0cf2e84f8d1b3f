"""Generate a catalogue of accelerators, and profiles of models on them, from a random seed."""

from optimizer.generate import generate_document

document = generate_document(servers=9, accelerators=4, types=2, seed=3)
for item in document["accelerators"]:
    print(f"{item['name']:<7}{item['memSize']:>5} GB{item['memBW']:>7} GB/s{item['cost']:>9.2f} cents/h")
for profile in document["models"]:
    decode, prefill = profile["decodeParms"], profile["prefillParms"]
    print(
        f"{profile['name']} on {profile['accCount']} x {profile['acc']:<6} "
        f"batch {profile['maxBatchSize']:>3}  "
        f"decode {decode['alpha']:.2f} + {decode['beta']:.3f} n ms  "
        f"prefill {prefill['gamma']:.2f} + {prefill['delta']:.5f} in n ms"
    )
print(", ".join(f"{item['count']} {item['type']}" for item in document["count"]))
